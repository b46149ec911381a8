//! A temporary home folder, in which the program runs.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Home folder. Its clusters end with it.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, text).expect("written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the folder of a cluster.
    pub(crate) fn cluster(&self, name: &str) -> PathBuf {
        self.path(".local/state/evenkeel/clusters").join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("HOME", self.0.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("KUBECONFIG")
            .env_remove("CLICOLOR_FORCE")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    /// Runs a command that succeeds and prints nothing to standard error. Returns its output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success() && errors.is_empty(),
            "{arguments:?}: {errors}; it printed: {printed}"
        );
        printed
    }

    /// Runs a command that fails. Returns its output on standard error.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    pub(crate) fn list(&self) -> Vec<Value> {
        serde_json::from_str(&self.succeed(&["list", "--output=json"])).expect("a list")
    }

    /// Returns the names and states of all clusters.
    pub(crate) fn states(&self) -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.list().iter().map(|each| (word(&each["name"]), word(&each["state"]))).collect()
    }

    /// Kills the process of a cluster, and waits for its end.
    pub(crate) fn kill(&self, name: &str) {
        let record = std::fs::read_to_string(self.cluster(name).join("cluster.json"));
        let record: Value = serde_json::from_str(&record.expect("a record")).expect("JSON");
        let pid = record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        wait_for_end(&self.cluster(name));
    }
}

/// Waits until no process holds the lock of a cluster.
fn wait_for_end(folder: &Path) {
    let lock = std::fs::File::open(folder.join("lock")).expect("a lock");
    lock.lock_shared().expect("locked");
}

impl Drop for Home {
    fn drop(&mut self) {
        // A cluster that is left running after a failed test would run forever.
        let _ = self.command(&["down", "--all"]).output();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the events that a command printed as JSON.
pub(crate) fn events(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}
