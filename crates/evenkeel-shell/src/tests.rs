//! Table tests of scripts: duration, exit code and output.

use evenkeel_api::{Encoding, View, time::Timestamp, views::PodCommand};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use crate::{
    NodeFields, Processes, Run, RunContext,
    files::{Content, Files, Scope},
};

/// Start time of every run, in seconds since 1970.
const START: i64 = 1_800_000_000;

/// Runs a container with this spec on the files of its pod. SIGTERM arrives after `signal` seconds.
fn run(container: Value, files: &Files, signal: Option<u64>) -> Result<Run, String> {
    run_as("u1/c/0", container, files, signal)
}

/// Runs a container like [`run`], with this run ID.
fn run_as(id: &str, container: Value, files: &Files, signal: Option<u64>) -> Result<Run, String> {
    with_process(id, container, files, signal, crate::Process::run)?
}

/// Calls `act` with the process of a container in the pod `web-0`.
fn with_process<T>(
    id: &str,
    mut container: Value,
    files: &Files,
    signal: Option<u64>,
    act: impl FnOnce(&crate::Process, &RunContext<'_>) -> T,
) -> Result<T, String> {
    container["name"] = "c".into();
    let pod = json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u1", "labels": { "app": "web" },
            "annotations": { "batch.kubernetes.io/job-completion-index": "3" },
        },
        "spec": {
            "containers": [container],
            "volumes": [
                { "name": "data", "emptyDir": {} }, { "name": "node", "hostPath": { "path": "/var/x" } },
                { "name": "config", "configMap": { "name": "c" } },
            ],
        },
    });
    let pod = PodCommand::decode(pod.to_string().as_bytes(), Encoding::Json).unwrap();
    let node = NodeFields { name: "node-1", host_ip: Ipv4Addr::new(172, 18, 0, 2) };
    let processes = Processes::read(&pod, node, |_| Some("registry.k8s.io/busybox:1"));
    let process = processes.get("c").ok_or("no process")?;
    let context = RunContext {
        start: Timestamp::from_second(START).unwrap(),
        signal: signal.map(Duration::from_secs),
        run: id,
        pod: files,
        node: &Files::default(),
        address: Ipv4Addr::new(10, 128, 0, 1),
    };
    Ok(act(process, &context))
}

/// Returns the spec of a container that runs a script with `sh -c`, with three volumes and the variables `GREETING`
/// and `N`.
fn shell(script: &str) -> Value {
    json!({
        "command": ["/bin/sh", "-c"], "args": [script],
        "volumeMounts": [
            { "name": "data", "mountPath": "/data" }, { "name": "node", "mountPath": "/node" },
            { "name": "config", "mountPath": "/config" },
        ],
        "env": [{ "name": "GREETING", "value": "hello  world" }, { "name": "N", "value": "7" }],
    })
}

/// Runs a script without files and signal.
fn script(text: &str) -> Result<Run, String> {
    run(shell(text), &Files::default(), None)
}

#[test]
fn a_log_has_the_lines_printed_until_a_time() {
    type Lines = &'static [(u64, &'static str)];
    let table: [(&str, u64, Lines); 10] = [
        ("echo a; sleep 2; echo b; exit 1", 9, &[(0, "a\n"), (2, "b\n")]),
        ("echo a; sleep 2; echo b", 1, &[(0, "a\n")]),
        ("echo err >&2; echo no > /tmp/x", 9, &[(0, "err\n")]),
        ("printf a; sleep 3; printf b", 9, &[(3, "ab")]),
        ("printf a; sleep 30", 9, &[]),
        (
            "while true; do echo tick; sleep 3; done",
            7,
            &[(0, "tick\n"), (3, "tick\n"), (6, "tick\n")],
        ),
        ("(sleep 2; echo job) & echo main; wait", 9, &[(0, "main\n"), (2, "job\n")]),
        ("(sleep 5; echo job) & echo main", 9, &[(0, "main\n")]),
        (
            "(echo a; sleep 5; echo b) & p=$!; (sleep 7; echo c) & sleep 2; kill $p; wait; echo d",
            9,
            &[(0, "a\n"), (7, "c\n"), (7, "d\n")],
        ),
        ("echo a; sleep 1; frobnicate --all; echo b", 9, &[(0, "a\n")]),
    ];
    for (text, until, want) in table {
        let until = Duration::from_secs(until);
        let log =
            with_process("u1/c/0", shell(text), &Files::default(), None, |process, context| {
                process.log(context, until)
            });
        let log = log.expect("a process");
        let got: Vec<(u64, &str)> =
            log.iter().map(|line| (line.after.as_secs(), &*line.text)).collect();
        assert_eq!(got, want, "{text:?}");
    }
}

#[test]
fn the_log_of_an_endless_loop_is_bounded() {
    for text in ["while true; do echo x; done", "while true; do echo x; sleep 0.001; done"] {
        let log =
            with_process("u1/c/0", shell(text), &Files::default(), None, |process, context| {
                process.log(context, Duration::MAX)
            });
        let log = log.expect("a process");
        assert!(log.len() > 10_000, "{text:?}: {}", log.len());
    }
}

#[test]
fn scripts_end_after_their_sleeps_with_their_exit_code() {
    for (text, seconds, status) in [
        ("", 0, 0),
        ("true", 0, 0),
        ("false", 0, 1),
        ("exit 3", 0, 3),
        ("exit 300", 0, 44),
        ("false; exit", 0, 1),
        ("f() { false; return; }; f; exit", 0, 1),
        ("sleep 5; exit 1", 5, 1),
        ("sleep 1m 30s", 90, 0),
        ("sleep 2 && sleep 3 || sleep 100", 5, 0),
        ("false && exit 4; exit 5", 0, 5),
        ("! false", 0, 0),
        ("false || ! true || exit 6", 0, 6),
        ("(sleep 2; exit 3); exit $(( $? + 1 ))", 2, 4),
        ("{ sleep 1; false; }", 1, 1),
        ("if [ $(expr 3 % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi", 0, 1),
        ("if false; then exit 1; elif true; then exit 2; fi", 0, 2),
        ("if false; then exit 1; fi", 0, 0),
        ("for i in 1 2 3; do sleep $i; done", 6, 0),
        ("i=0; while [ $i -lt 5 ]; do i=$((i+1)); sleep 2; done; exit $i", 10, 5),
        ("i=9; until test $i = 7; do i=`expr $i - 1`; done; exit $i", 0, 7),
        (
            "for i in a b c; do if [ $i = b ]; then continue; fi; [ $i = c ] && break; sleep 1; done",
            1,
            0,
        ),
        ("f() { sleep $1; return 4; }; f 3; exit $?", 3, 4),
        ("set -e; sleep 1; false; sleep 10", 1, 1),
        ("set -e; if false; then :; fi; false || true; ! true; exit 9", 0, 9),
        ("set -eo pipefail\nfalse | true\nexit 7", 0, 1),
        ("false | true", 0, 0),
        ("set -u; echo $NOTHING; exit 1", 0, 2),
        ("case $N in [0-5]) exit 1;; 6|7) exit 2;; *) exit 3;; esac", 0, 2),
        ("trap 'exit 9' EXIT; sleep 1; exit 1", 1, 9),
        ("sleep 5 & sleep 2; wait; exit 1", 5, 1),
        ("(sleep 3; exit 6) & wait $!; exit $?", 3, 6),
        ("sleep 100 & p=$!; kill $p; wait $p; exit $?", 0, 143),
        ("timeout 2 sleep 10; exit $?", 2, 143),
        ("sh -c 'sleep 1; exit 8'; exit $?", 1, 8),
        ("exec sleep 4", 4, 0),
        ("[[ -z '' && abc == a* && ( 1 -lt 2 || x == y ) ]] && exit 3", 0, 3),
        ("[[ abc == 'a*' ]]", 0, 1),
        ("[ 1 -eq 1 -a a != b ] && [ ! -e /tmp/x ] && exit 2", 0, 2),
        ("[ abc -eq 1 ]", 0, 2),
        ("cat /tmp/none", 0, 1),
        ("echo x > /tmp/a/b", 0, 1),
        ("mkdir -p /tmp/a && echo x > /tmp/a/b && grep=1; test -d /tmp/a -a -s /tmp/a/b", 0, 0),
        ("cd /tmp; touch x; test -f /tmp/x; rm x; test -f /tmp/x", 0, 1),
        ("eval 'exit 3'", 0, 3),
        ("X=5 sh -c 'exit $X'", 0, 5),
        ("X=5; sh -c 'exit $X'", 0, 0),
    ] {
        let run = script(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        let want = (Some(Duration::from_secs(seconds)), status);
        assert_eq!((run.lasts, run.exit_code), want, "{text:?} {}", run.output);
    }
}

#[test]
fn scripts_print_the_output_of_a_shell() {
    for (text, want) in [
        ("echo hello", "hello\n"),
        ("echo -n a; echo \"b  c\" 'd $N'", "ab  c d $N\n"),
        ("echo $GREETING \"$GREETING\"", "hello world hello  world\n"),
        ("printf '%s=%d\\n' a 1 b 2", "a=1\nb=2\n"),
        ("echo $(echo a; echo b) `echo c`", "a b c\n"),
        ("echo $((N * 2 + 1)) ${N} ${#GREETING} ${NONE:-none} ${N:+some}", "15 7 12 none some\n"),
        (
            "p=/a/b.tar.gz; echo ${p##*/} ${p%.*} ${p%%.*} ${p#/}",
            "b.tar.gz /a/b.tar /a/b a/b.tar.gz\n",
        ),
        (
            "set -- a 'b c' d; echo $#; for x in \"$@\"; do echo \"<$x>\"; done; shift; echo $1",
            "3\n<a>\n<b c>\n<d>\nb c\n",
        ),
        ("f() { local x=1; x=2; }; x=0; f; echo $x", "0\n"),
        ("cat <<EOF\na $N\nEOF\ncat <<'EOF'\n$N\nEOF", "a 7\n$N\n"),
        ("echo a > /tmp/x; echo b >> /tmp/x; cat /tmp/x | wc -l; cat < /tmp/x", "2\na\nb\n"),
        ("echo no >/dev/null 2>&1; echo err >&2", "err\n"),
        ("echo a | while true; do cat; break; done", "a\n"),
        ("seq 3 | tail -n 1; basename /a/b.c .c; dirname /a/b", "3\nb\n/a\n"),
        ("date +%s; sleep 5; date", "1800000000\nFri Jan 15 08:00:05 UTC 2027\n"),
        ("touch /data/b /data/a; ls /data", "a\nb\n"),
        ("echo a\\\n b # c\n", "a b\n"),
        ("seq 4 | tail -n +3; seq 3 | tail -n+3; seq 2 | tail -n +0", "3\n4\n3\n1\n2\n"),
        (
            "cd /tmp; echo x > a; mv a a; cat a; mv a /tmp/; cat a; cp a ./a; echo $?; cat a",
            "x\nx\n1\nx\n",
        ),
        (
            "f() { echo f; }; f=1; unset -f f; echo $f; f=2; f() { echo g; }; unset f; f; echo $f-",
            "1\ng\n-\n",
        ),
        ("bash -c 'f() { :; }; unset f; f=3; unset -v f; echo $f-'", "-\n"),
        ("set -- ab cd ''; echo ${#@} ${#*} ${#1} ${#}", "3 3 2 3\n"),
        (
            "bash -c '[[ -z $(echo x >> /tmp/n) ]]; [[ a == b && -n $(echo y >> /tmp/n) || a == $(echo a >> /tmp/n; echo a) ]]; echo $?; cat /tmp/n'",
            "0\nx\na\n",
        ),
        ("[[ ! ( a == b || a == c ) && 1 -lt 2 ]] && echo yes; [[ -n a || ]]; echo $?", "yes\n2\n"),
        ("timeout 3 sh -c 'echo a; sleep 2; echo b; sleep 2; echo c'; echo d", "a\nb\nd\n"),
        ("timeout 3 sh -c 'echo a; while sleep 2; do echo b; done'; echo $?", "a\nb\n143\n"),
        ("timeout 3 sh -c 'while :; do i=$((i+1)); done'; echo $?", "143\n"),
        ("x=$(timeout 9 timeout 1 sh -c 'sleep 2; echo a'); echo $x-; sleep 20; echo b", "-\nb\n"),
        (
            "while sleep 2; do echo x >> /tmp/x; done & p=$!; sleep 5; kill $p; sleep 5; cat /tmp/x",
            "x\nx\n",
        ),
        (
            "(sleep 5; echo j > /tmp/j; echo k > /tmp/k) & p=$!; timeout 3 sh -c \"kill $p; sleep 9; echo b > /tmp/b\"; sleep 20; [ -e /tmp/b ]; echo $?",
            "1\n",
        ),
        ("cat <<EOF; echo 'x\ny'\na\nEOF\n", "a\nx\ny\n"),
        ("cat <<EOF; echo \"x\\\"\ny\" # it's\na\nEOF\necho b", "a\nx\"\ny\nb\n"),
        (
            "echo {a,b} {1..3}; bash -c 'echo {a,b} x{1..3}y {}'",
            "{a,b} {1..3}\na b x1y x2y x3y {}\n",
        ),
        // The kubelet replaces two dollar signs with one.
        ("hostname; echo $0 $$$$", "web-0\nsh 1\n"),
        ("expr 2 + 3 \\* 4; expr 1 \\> 2; expr a = a", "14\n0\n1\n"),
    ] {
        let run = script(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        assert_eq!(run.output, want, "{text:?}");
    }
}

#[test]
fn endless_scripts_without_a_handler_run_until_they_are_killed() {
    for text in [
        "sleep infinity",
        "while true; do sleep 1; done",
        "while :; do date; sleep 5; done",
        "i=0; while true; do i=$((i+1)); sleep 60; done",
        "while true; do :; done",
        "until [ -f /data/never ]; do sleep 2; done",
        "tail -f /dev/null",
        "while true; do date >> /data/log; sleep 5; done",
        "sleep infinity & wait",
        "trap : TERM; while true; do sleep 1; done",
        "while true; do timeout 1 sh -c 'while :; do i=$((i+1)); done'; done",
    ] {
        let run = script(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        assert_eq!(run.lasts, None, "{text:?}");
        // The first process of a container ignores a signal that it has no handler for.
        assert_eq!(
            self::run(shell(text), &Files::default(), Some(9)).unwrap().lasts,
            None,
            "{text:?}"
        );
    }
}

#[test]
fn the_trap_handles_the_signal() {
    for (text, signal, ends) in [
        (
            "_term(){\n sleep 5\n exit 143\n}\ntrap _term SIGTERM\nwhile true; do\n sleep 1\ndone",
            100,
            Some((105, 143)),
        ),
        ("trap 'exit 3' TERM; sleep 20; exit 1", 5, Some((20, 3))),
        ("trap 'exit 3' TERM; sleep 20 & wait", 5, Some((5, 3))),
        ("trap 'exit 3' TERM; sleep infinity & wait $!", 5, Some((5, 3))),
        ("trap 'exit 3' TERM; sleep infinity", 5, None),
        ("trap 'x=1' 15; while [ -z \"$x\" ]; do sleep 10; done; exit 4", 25, Some((30, 4))),
        ("trap '' TERM; sleep 30", 5, Some((30, 0))),
        ("trap 'exit 0' TERM; trap - TERM; sleep 30", 5, Some((30, 0))),
        (
            "trap 'exit 0' TERM; i=0; while true; do i=$((i+1)); sleep 1; done",
            1_000_000,
            Some((1_000_000, 0)),
        ),
        ("sleep 3", 1, Some((3, 0))),
    ] {
        let run = run(shell(text), &Files::default(), Some(signal)).unwrap();
        let ended = run.lasts.map(|lasts| (lasts.as_secs(), run.exit_code));
        assert_eq!(ended, ends, "{text:?}");
    }
}

#[test]
fn a_command_without_a_shell_is_executed_directly() {
    for (command, lasts, status) in [
        (json!(["sleep", "3"]), Some(3), 0),
        (json!(["/bin/false"]), Some(0), 1),
        (json!(["echo", "$(N) $N"]), Some(0), 0),
        (json!(["sleep", "infinity"]), None, 0),
        (json!(["bash", "-ec", "for i in {1..3}; do sleep $i; done; false; sleep 9"]), Some(6), 1),
        (json!(["sh"]), Some(0), 0),
        (json!([]), Some(0), 0),
    ] {
        let run = run(json!({ "command": command }), &Files::default(), None).unwrap();
        assert_eq!(
            (run.lasts.map(|lasts| lasts.as_secs()), run.exit_code),
            (lasts, status),
            "{command}"
        );
    }
    assert!(run(json!({ "stdin": true }), &Files::default(), None).is_err());
}

#[test]
fn pause_ends_when_the_signal_arrives() {
    for container in [json!({ "args": ["pause"] }), json!({ "command": ["/agnhost", "pause"] })] {
        let ends = |signal| run(container.clone(), &Files::default(), signal).unwrap();
        assert_eq!(ends(None).lasts, None);
        let asked = ends(Some(7));
        assert_eq!((asked.lasts, asked.exit_code), (Some(Duration::from_secs(7)), 0));
    }
}

#[test]
fn variables_have_values_of_fields_of_the_pod() {
    let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    let container = json!({
        "command": ["sh", "-c", "echo $A $B $C $D $E $F $G"],
        "env": [
            { "name": "A", "valueFrom": field("metadata.annotations['batch.kubernetes.io/job-completion-index']") },
            { "name": "B", "valueFrom": field("metadata.name") },
            { "name": "C", "valueFrom": field("metadata.labels['app']") },
            { "name": "D", "valueFrom": field("status.podIP") },
            { "name": "E", "valueFrom": field("spec.nodeName") },
            { "name": "F", "value": "$(A)-$(B)" },
            { "name": "G", "valueFrom": field("metadata.namespace") },
        ],
    });
    let run = run(container, &Files::default(), None).unwrap();
    assert_eq!(run.output, "3 web-0 web 10.128.0.1 node-1 3-web-0 shop\n");
}

#[test]
fn a_readiness_probe_fails_by_exit_code_or_timeout() {
    for (command, timeout, want) in [
        ("exit 0", None, true),
        ("exit 1", None, false),
        ("sleep 1", None, false),
        ("sleep 1", Some(2), true),
        ("sleep 5", Some(2), false),
        ("sleep infinity", Some(100), false),
    ] {
        let mut container = shell("sleep infinity");
        container["readinessProbe"] = json!({ "exec": { "command": ["sh", "-c", command] } });
        if let Some(timeout) = timeout {
            container["readinessProbe"]["timeoutSeconds"] = timeout.into();
        }
        let ready =
            with_process("u1/c/0", container, &Files::default(), None, crate::Process::readiness);
        assert_eq!(ready, Ok(Some(want)), "{command} {timeout:?}");
    }
}

#[test]
fn scripts_with_unknown_values_or_unsupported_parts_are_rejected() {
    let secret =
        json!([{ "name": "S", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]);
    assert!(
        run(json!({ "command": ["sh", "-c", "echo $S"], "env": secret }), &Files::default(), None)
            .is_err()
    );
    assert!(
        run(json!({ "command": ["sh", "-c", "exit 0"], "env": secret }), &Files::default(), None)
            .is_ok()
    );
    for text in ["IFS=,", "export IFS=,", "f() { local IFS=:; }; f"] {
        assert!(script(text).is_err(), "{text}");
    }
    let from = json!([{ "configMapRef": { "name": "c" } }]);
    assert!(
        run(
            json!({ "command": ["sh", "-c", "exit $X"], "envFrom": from }),
            &Files::default(),
            None
        )
        .is_err()
    );
    for text in [
        "curl http://example.com",
        "python -c 'x'",
        "cat /config/file",
        "cat /etc/passwd",
        "ls /usr",
        "rm -rf /data/*",
        "./run.sh",
        "echo $KUBERNETES_SERVICE_HOST",
        "sh /run.sh",
        "if true; then",
        "echo \"open",
        "a=(1 2)",
        "((1))",
        "echo ${a/b/c}",
        "exit $((1/0))",
        "cat <(echo)",
        "f() { f; }; f",
        "x=xxxxxxxx; while :; do x=$x$x; done",
        "select x in a; do :; done",
        "time true",
        "echo a |& cat",
        "exec > /tmp/x",
    ] {
        assert!(script(text).is_err(), "{text:?}: {:?}", script(text));
    }
}

#[test]
fn writes_have_times_and_writes_of_other_runs_are_seen_at_their_times() {
    let writer =
        script("sleep 5; echo done > /data/flag; sleep 10; rm /data/flag; touch /node/a /tmp/own")
            .unwrap();
    let written: Vec<_> = writer
        .writes
        .iter()
        .map(|write| {
            (
                write.after.as_secs(),
                write.path.scope.clone(),
                &*write.path.path,
                write.content.is_some(),
            )
        })
        .collect();
    let data = Scope::Volume("data".into());
    assert_eq!(
        written,
        [
            (5, data.clone(), "/flag", true),
            (15, data, "/flag", false),
            (15, Scope::Node, "/var/x/a", true),
            (15, Scope::Container("c".into()), "/tmp/own", true),
        ]
    );
    let mut files = Files::default();
    let by: Arc<str> = "u1/other/0".into();
    files.replace(
        &by,
        Timestamp::from_second(START).unwrap(),
        &writer.writes.iter().collect::<Vec<_>>(),
    );
    for (text, ends) in [
        ("until [ -f /data/flag ]; do sleep 2; done; cat /data/flag", Some((6, "done\n"))),
        ("sleep 7; while [ -f /data/flag ]; do sleep 1; done", Some((15, ""))),
        ("until [ -f /data/other ]; do sleep 2; done", None),
    ] {
        let run = run(shell(text), &files, None).unwrap();
        let ended = run.lasts.map(|lasts| (lasts.as_secs(), &*run.output));
        assert_eq!(ended, ends, "{text:?}");
        assert!(run.reads_shared_files, "{text:?}");
    }
    assert!(!script("sleep 1").unwrap().reads_shared_files);
}

#[test]
fn random_draws_are_seeded_by_the_run() {
    let draw = |id: &str| {
        run_as(
            id,
            shell("echo $RANDOM $RANDOM; exit $(( $RANDOM / 16384 ))"),
            &Files::default(),
            None,
        )
    };
    assert_eq!(draw("u1/c/0"), draw("u1/c/0"));
    assert_ne!(draw("u1/c/0").unwrap().output, draw("u1/c/1").unwrap().output);
    let statuses: Vec<i32> = (0..40).map(|n| draw(&format!("u/{n}")).unwrap().exit_code).collect();
    assert!(statuses.contains(&0) && statuses.contains(&1), "{statuses:?}");
}

#[test]
fn a_redirect_to_a_folder_fails() {
    let run = script("mkdir /tmp/d; echo x > /tmp/d").unwrap();
    assert_eq!(run.exit_code, 1);
    assert!(run.writes.iter().all(|write| write.content == Some(Content::Folder)));
}

/// Generates scripts from random valid and invalid fragments.
fn arbitrary_script() -> impl Strategy<Value = String> {
    let pieces = &[
        "if ",
        "then ",
        "else ",
        "fi ",
        "while ",
        "true; ",
        "do ",
        "done ",
        "; ",
        "\n",
        "&& ",
        "|| ",
        "| ",
        "& ",
        "( ",
        ") ",
        "{ ",
        "} ",
        "$(",
        "$((",
        "))",
        "`",
        "\"",
        "'",
        "$x ",
        "${x:-",
        "}",
        "x=1 ",
        "x=$x$x ",
        "echo a ",
        "sleep 1 ",
        "sleep infinity ",
        "exit 3 ",
        "[ ",
        "] ",
        "[[ ",
        "]] ",
        "-f ",
        "/data/x ",
        "> ",
        ">> ",
        "< ",
        "2>&1 ",
        "<<E\n",
        "E\n",
        "f() ",
        "f ",
        "trap f TERM ",
        "wait ",
        "for i in ",
        "a b ",
        "case a in ",
        "a) ",
        ";; ",
        "esac ",
        "! ",
        "* ",
        "\\",
        "break ",
        "continue ",
        "return ",
        "set -e ",
        "eval ",
        "sh -c ",
        "seq 9999999 ",
        "expr ",
        "1 ",
        "+ ",
        "é",
    ][..];
    proptest::collection::vec(proptest::sample::select(pieces), 0..40)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_script_is_interpreted_or_rejected_deterministically(text in arbitrary_script(), any in ".{0,60}", signal in proptest::option::of(0_u64..100)) {
        for text in [&text, &any] {
            let first = run(shell(text), &Files::default(), signal);
            prop_assert_eq!(&first, &run(shell(text), &Files::default(), signal), "equal input, equal outcome");
            if let Ok(run) = first {
                prop_assert!(run.output.len() <= super::interpreter::MAX_LENGTH);
                prop_assert!((0..256).contains(&run.exit_code));
            }
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack(open in proptest::sample::select(&["(", "{ ", "$(", "$((", "`", "\"$(", "${x:-", "if ", "case a in (a) ", "[[ ( ", "! "][..])) {
        let _ = script(&open.repeat(5_000));
        let _ = script(&format!("{}:{}", open.repeat(30), ")".repeat(30)));
    }
}
