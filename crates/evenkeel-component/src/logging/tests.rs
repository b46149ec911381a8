use super::*;
use std::{
    io::Write,
    sync::{Mutex, PoisonError},
};

/// Stream whose content a test can read.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Vec<u8>>>);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Returns the output of `work` with these options, on standard error and on standard output.
fn logged(options: &LoggingOptions, work: impl FnOnce(&Log)) -> (String, String) {
    // Virtual time does not advance.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _inside = runtime.enter();
    let (errors, others) = (Stream::default(), Stream::default());
    let split = options.split.then(|| Box::new(others.clone()) as Box<dyn Write + Send>);
    let log = Log {
        levels: Arc::new(Levels::new(options.verbosity, options.by_file.clone())),
        sink: Arc::new(Sink::new(Box::new(errors.clone()), split, options.buffer)),
        flush: options.flush,
    };
    let lines = Lines {
        levels: log.levels.clone(),
        sink: log.sink.clone(),
        format: options.format,
        clock: Clock::starting_at("2026-11-21T12:00:00.00025Z".parse().expect("a time")),
        process: 321,
    };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || work(&log));
    (errors.text(), others.text())
}

fn log_events(_: &Log) {
    tracing::info!(target: "evenkeel", pods = 3, name = "a \"b\"", "Scaled");
    tracing::debug!(target: "evenkeel", "decided");
    tracing::warn!(target: "evenkeel", slow = true, "Slow");
    let outer =
        tracing::info_span!(target: "evenkeel", "reconcile", controller = "job", name = "outer");
    outer.in_scope(|| {
        let error = std::io::Error::other("line 1\nline 2");
        tracing::error!(target: "evenkeel", error = %error, name = "inner", "Failed");
    });
}

/// Removes the line numbers of the source files.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = match line.split_once("tests.rs:") {
            Some((before, after)) => {
                let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}tests.rs:N{after}")
            }
            None => line.to_owned(),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

#[test]
fn text_format_is_klogs() {
    let (errors, _) = logged(&LoggingOptions::default(), log_events);
    assert_eq!(
        without_numbers(&errors),
        "I1121 12:00:00.000250     321 tests.rs:N] \"Scaled\" pods=3 name=\"a \\\"b\\\"\"\n\
         W1121 12:00:00.000250     321 tests.rs:N] \"Slow\" slow=true\n\
         E1121 12:00:00.000250     321 tests.rs:N] \"Failed\" err=<\n\tline 1\n\tline 2\n > name=\"inner\" controller=\"job\"\n"
    );
}

#[test]
fn json_format_is_component_bases() {
    let options =
        LoggingOptions { format: Format::Json, verbosity: 4, ..LoggingOptions::default() };
    let (errors, _) = logged(&options, log_events);
    assert_eq!(
        without_numbers(&errors),
        "{\"ts\":1795262400000.25,\"caller\":\"logging/tests.rs:N\",\"msg\":\"Scaled\",\"v\":0,\"pods\":3,\"name\":\"a \\\"b\\\"\"}\n\
         {\"ts\":1795262400000.25,\"caller\":\"logging/tests.rs:N\",\"msg\":\"decided\",\"v\":4}\n\
         {\"ts\":1795262400000.25,\"caller\":\"logging/tests.rs:N\",\"msg\":\"Slow\",\"v\":0,\"slow\":true}\n\
         {\"ts\":1795262400000.25,\"caller\":\"logging/tests.rs:N\",\"msg\":\"Failed\",\"err\":\"line 1\\nline 2\",\"name\":\"inner\",\"controller\":\"job\"}\n"
    );
}

#[test]
fn the_verbosity_can_change_at_run_time() {
    let log_event = || tracing::debug!(target: "evenkeel", "decided");
    let (errors, _) = logged(&LoggingOptions::default(), |log| {
        log_event();
        log.set_verbosity(4);
        assert_eq!(log.verbosity(), 4);
        log_event();
        log.set_verbosity(0);
        log_event();
    });
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_single_file_can_log_more() {
    let log_event = |_: &Log| tracing::trace!(target: "evenkeel", "sent");
    let by_file = |pattern: &str| LoggingOptions {
        by_file: vec![(pattern.to_owned(), 6)],
        ..LoggingOptions::default()
    };
    assert_eq!(logged(&by_file("test*"), log_event).0.lines().count(), 1);
    assert_eq!(logged(&by_file("other"), log_event).0, "");
}

#[test]
fn streams_can_be_split_and_buffered() {
    let options = LoggingOptions { split: true, buffer: 4096, ..LoggingOptions::default() };
    let (errors, others) = (Stream::default(), Stream::default());
    let sink = Sink::new(Box::new(errors.clone()), Some(Box::new(others.clone())), options.buffer);
    sink.write(Level::INFO, "one\n");
    sink.write(Level::ERROR, "two\n");
    assert_eq!((errors.text().as_str(), others.text().as_str()), ("two\n", ""));
    sink.flush();
    assert_eq!(others.text(), "one\n");
    let (errors, others) = logged(&LoggingOptions { buffer: 0, ..options }, log_events);
    assert!(errors.contains("Failed") && !errors.contains("Slow"), "{errors}");
    assert!(others.contains("Slow") && !others.contains("Failed"), "{others}");
}

#[test]
fn a_file_has_all_lines_and_the_stream_the_severe_ones() {
    for (least_severe, want) in [
        (None, ""),
        (Some(Level::ERROR), "error\n"),
        (Some(Level::WARN), "error\nwarn\n"),
        (Some(Level::TRACE), "error\nwarn\ninfo\n"),
    ] {
        let (errors, file) = (Stream::default(), Stream::default());
        let sink = Sink::new(Box::new(errors.clone()), None, 0)
            .with_file(Box::new(file.clone()), least_severe);
        for (level, line) in
            [(Level::ERROR, "error\n"), (Level::WARN, "warn\n"), (Level::INFO, "info\n")]
        {
            sink.write(level, line);
        }
        assert_eq!((errors.text().as_str(), &*file.text()), (want, "error\nwarn\ninfo\n"));
    }
}

/// At high verbosity, libraries log requests and responses, which contain tokens and Secrets.
#[test]
fn bodies_in_events_of_libraries_are_never_logged() {
    let options = LoggingOptions { verbosity: 10, ..LoggingOptions::default() };
    let (errors, _) = logged(&options, |_| {
        tracing::warn!(target: "kube_client::client", "{{\"data\": secret}}, cannot be read");
        tracing::debug!(target: "h2::codec", "frame with a token");
        tracing::trace!(target: "hyper::proto", "bytes");
        tracing::info!(target: "hyper::proto", "logged");
        tracing::warn!(target: "kube_client::config", "logged");
    });
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.lines().all(|line| line.contains("logged")), "{errors}");
}
