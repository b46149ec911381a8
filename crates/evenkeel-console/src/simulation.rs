//! The switches of the simulation: the cluster's time, faults of nodes, and Behaviors. Writes are those of the user, if the console
//! has switches at all.

use crate::{
    Console,
    pages::Content,
    permissions::Permission,
    session::Session,
    source::{BEHAVIORS, PageError},
    view::simulation::{FaultChange, SimulationPage, TimeFacts, behaviors, faults},
};
use evenkeel_api::{View as _, views::Node};
use evenkeel_component::flags::duration;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// Path of the page.
pub(crate) const PATH: &str = "/simulation";

/// The time of a cluster that has its own time.
pub trait TimeControl: Send + Sync {
    /// Returns the factor of the system's time.
    fn speed(&self) -> f64;
    /// Returns the remaining duration of a jump.
    fn remaining_jump(&self) -> Duration;
    /// Sets the speed: a string such as `60x`.
    ///
    /// # Errors
    /// Fails if the string is not a speed.
    fn set_speed(&self, speed: &str) -> Result<(), String>;
    /// Makes the time jump ahead.
    ///
    /// # Errors
    /// Fails if the time would be too far ahead.
    fn jump(&self, by: Duration) -> Result<(), String>;
}

fn bad_request(message: String) -> PageError {
    PageError { status: StatusCode::BAD_REQUEST, message }
}

impl Console {
    /// Returns the page of the simulation's switches.
    pub(crate) async fn simulation_page(&self, session: &Session) -> Result<Content, PageError> {
        self.require_simulation()?;
        let mut refused = Vec::new();
        let now = self.time.now();
        let nodes = self.visible::<Node>(session, &mut refused).await?;
        let found = match session.source.behaviors().await {
            Ok(found) => found,
            Err(error) if error.status == StatusCode::FORBIDDEN => {
                refused.push(error.message);
                None
            }
            Err(error) => return Err(error),
        };
        let own = self.time_control.as_ref().map(|it| (it.speed(), it.remaining_jump()));
        let page = SimulationPage {
            form_token: self.switch_token(session).to_owned(),
            time: TimeFacts::new(now, own, session.user().is_none()),
            refused,
            faults: nodes.map(|nodes| faults(&self.node_faults, now, &nodes)),
            behaviors: found.map(|found| behaviors(&found)),
        };
        Content::render("Simulation", &page)
    }

    fn require_simulation(&self) -> Result<(), PageError> {
        match self.program {
            None => Ok(()),
            Some(_) => Err(PageError::not_found(format!("There is no page {PATH}."))),
        }
    }

    /// Changes the cluster's time, faults or Behaviors, as a form of the page requests.
    pub(crate) async fn switch_simulation(
        &self,
        session: &Session,
        what: &str,
        form: impl Fn(&str) -> Option<String>,
    ) -> Result<(), PageError> {
        self.require_simulation()?;
        if !self.allows_writes {
            let message = "This console only reads. Start the cluster with --console-writes to switch the simulation.";
            return Err(PageError { status: StatusCode::FORBIDDEN, message: message.to_owned() });
        }
        match what {
            "time" => self.change_time(session, form),
            "fault" => self.change_fault(session, form).await,
            "behavior" => {
                let name = form("name").unwrap_or_default();
                if name.is_empty() {
                    return Err(bad_request("name: the form names no Behavior.".to_owned()));
                }
                let suspend = match form("suspend").as_deref() {
                    Some("true") => json!(true),
                    // Without the field, it is in effect.
                    _ => Value::Null,
                };
                let patch = json!({"spec": {"suspend": suspend}});
                session.source.patch(&BEHAVIORS, "", &name, &patch).await
            }
            _ => Err(PageError::not_found(format!("There is no form {PATH}/{what}."))),
        }
    }

    /// Changes the time. The time is not an object of the API, so no role grants access to it.
    fn change_time(
        &self,
        session: &Session,
        form: impl Fn(&str) -> Option<String>,
    ) -> Result<(), PageError> {
        if session.user().is_some() {
            let message = "Only the cluster's administrator changes its time. Open the URL that `evenkeel console` prints.";
            return Err(PageError { status: StatusCode::FORBIDDEN, message: message.to_owned() });
        }
        let Some(time) = &self.time_control else {
            let message = "The cluster has the system's time. Start one with a time of its own: evenkeel up --speed=1x";
            return Err(PageError { status: StatusCode::CONFLICT, message: message.to_owned() });
        };
        if let Some(speed) = form("speed") {
            time.set_speed(speed.trim()).map_err(|error| bad_request(format!("speed: {error}")))?;
        }
        if let Some(jump) = form("jump") {
            let by = lasting(jump.trim().trim_start_matches('+'));
            let by = by.map_err(|error| bad_request(format!("jump: {error}")))?;
            time.jump(by).map_err(bad_request)?;
        }
        Ok(())
    }

    /// Begins or ends a fault of nodes.
    async fn change_fault(
        &self,
        session: &Session,
        form: impl Fn(&str) -> Option<String>,
    ) -> Result<(), PageError> {
        session.require(&Permission::list(&Node::kind(), "")).await?;
        let nodes = self.cached::<Node>().map(|nodes| nodes.list()).unwrap_or_default();
        let change =
            FaultChange::of(form, lasting, &nodes, self.time.now()).map_err(bad_request)?;
        let patch = change.patch();
        for name in &change.nodes {
            session.source.patch(&Node::kind(), "", name, &patch).await?;
        }
        Ok(())
    }
}

fn lasting(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|reason| format!("{reason}; write one such as 90s, 5m or 1h30m"))
}
