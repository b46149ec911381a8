//! Fuzz targets for connections after their upgrade from HTTP.

/// Frames of SPDY: any bytes are frames or refused, and frames are encoded as they were.
pub(crate) fn spdy_frames(data: &[u8]) {
    evenkeel_apiserver::fuzz::spdy_frames(data);
}
