//! What each controller decides and does.
