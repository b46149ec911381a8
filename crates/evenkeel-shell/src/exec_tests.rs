//! Tables of commands in running containers: their output on both streams, and how they end.

use evenkeel_api::{Encoding, View, time::Timestamp, views::PodCommand};
use serde_json::json;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use crate::{
    Environment, ExecRun, Files, NodeFields, Progress, RunContext, ShellSession, copies_input,
    reads_commands,
};

/// Start time of every run, in seconds since 1970.
const START: i64 = 1_800_000_000;

/// Returns the environment of a container with an `emptyDir` volume at `/data`, a ConfigMap volume at
/// `/etc/config`, and the variables `N`, and `S` from a Secret.
fn environment() -> Environment {
    let pod = json!({
        "metadata": { "name": "web-0", "namespace": "shop", "uid": "u1" },
        "spec": {
            "containers": [{
                "name": "c", "image": "nginx", "workingDir": "/work",
                "env": [{ "name": "N", "value": "7" }, { "name": "S", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "config", "mountPath": "/etc/config" }],
            }],
            "volumes": [{ "name": "data", "emptyDir": {} }, { "name": "config", "configMap": { "name": "c" } }],
        },
    });
    let pod = PodCommand::decode(pod.to_string().as_bytes(), Encoding::Json).unwrap();
    let node = NodeFields { name: "node-1", host_ip: Ipv4Addr::new(172, 18, 0, 2) };
    Environment::read(&pod, "c", "nginx", node).unwrap()
}

fn context<'a>(run: &'a str, files: &'a Files, node: &'a Files) -> RunContext<'a> {
    let start = Timestamp::from_second(START).unwrap();
    RunContext { start, signal: None, run, pod: files, node, address: Ipv4Addr::new(10, 0, 0, 1) }
}

/// Interprets a command for `until` seconds.
fn execute(words: &[&str], input: Option<&str>, files: &Files, until: u64) -> ExecRun {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let (input, node) = (input.map(Arc::from), Files::default());
    let context = context("u1/c/0/exec/0", files, &node);
    environment().exec(&words, input, false, &context, Duration::from_secs(until))
}

/// Returns the whole standard output and the whole standard error.
fn printed(run: &ExecRun) -> (String, String) {
    let printed_to = |stderr| -> String {
        let outputs = run.outputs.iter().filter(|output| output.to_stderr == stderr);
        outputs.map(|output| &*output.text).collect()
    };
    (printed_to(false), printed_to(true))
}

#[test]
fn a_command_prints_to_standard_output_and_standard_error() {
    let table: [(&[&str], i32, &str, &str); 21] = [
        (&["true"], 0, "", ""),
        (&["false"], 1, "", ""),
        (&["echo", "a  b", "c"], 0, "a  b c\n", ""),
        (&["/bin/echo", "a"], 0, "a\n", ""),
        (&["sh", "-c", "exit 3"], 3, "", ""),
        (&["sh", "-c", "echo out; echo err >&2; exit 4"], 4, "out\n", "err\n"),
        (&["sh", "-c", "echo both 2>&1 >/dev/null"], 0, "", ""),
        (&["sh", "-c", "ls /nowhere 2>&1"], 1, "ls: /nowhere: No such file or directory\n", ""),
        (
            &["cat", "/etc/shadow"],
            1,
            "",
            "cat: can't open '/etc/shadow': No such file or directory\n",
        ),
        (&["sh", "-c", "vim x; echo $?"], 0, "127\n", "sh: vim: not found\n"),
        (&["sh", "-c", "/x/y"], 127, "", "sh: /x/y: not found\n"),
        (&["printenv", "N"], 0, "7\n", ""),
        (&["printenv", "S"], 0, "\n", ""),
        (&["sh", "-c", "echo [$S] [$MISSING] [$REDIS_SERVICE_HOST]"], 0, "[] [] []\n", ""),
        (&["hostname"], 0, "web-0\n", ""),
        (&["pwd"], 0, "/work\n", ""),
        (
            &["ls", "/"],
            0,
            "app\nbin\nboot\ndata\ndev\netc\nhome\nlib\nlib32\nlib64\nmnt\nopt\nproc\nroot\nrun\nsbin\nsrv\nsys\ntmp\nusr\nvar\n",
            "",
        ),
        (&["ls", "/etc", "/data"], 0, "config\n", ""),
        (&["sh", "-c", "echo 'echo $1 $0' > /tmp/s; sh /tmp/s a"], 0, "a /tmp/s\n", ""),
        (&["sh", "/tmp/none"], 2, "", "sh: can't open '/tmp/none'\n"),
        (
            &["sh", "-c", "echo a; echo x > /proc/1/fd/1"],
            126,
            "a\n",
            "evenkeel: a simulated container does not understand this: printing to the container's log\n",
        ),
    ];
    for (words, code, out, err) in table {
        let run = execute(words, Some(""), &Files::default(), 60);
        assert_eq!(printed(&run), (out.to_owned(), err.to_owned()), "{words:?}");
        assert_eq!(run.progress, Progress::Ended(Duration::ZERO, code), "{words:?}");
    }
}

#[test]
fn a_missing_program_or_a_builtin_does_not_start() {
    for (words, program) in
        [(&["vim", "x"] as &[&str], "vim"), (&["cd", "/"], "cd"), (&["/x/y"], "/x/y"), (&[], "")]
    {
        let run = execute(words, Some(""), &Files::default(), 60);
        assert_eq!(run.progress, Progress::NotFound(program.to_owned()), "{words:?}");
    }
}

#[test]
fn only_output_and_writes_of_the_interpreted_time_are_returned() {
    let script = "echo a; sleep 2; echo b; echo c > /tmp/x; sleep 100; echo d";
    let run = execute(&["sh", "-c", script], Some(""), &Files::default(), 60);
    let times: Vec<_> =
        run.outputs.iter().map(|output| (output.after.as_secs(), &*output.text)).collect();
    assert_eq!(times, [(0, "a\n"), (2, "b\n")]);
    assert_eq!(run.progress, Progress::Running);
    assert_eq!(run.writes.len(), 1);
    let run = execute(&["sh", "-c", script], Some(""), &Files::default(), 600);
    assert_eq!(run.progress, Progress::Ended(Duration::from_secs(102), 0));
    for endless in ["while true; do sleep 1; done", "sleep infinity", "tail -f /dev/null"] {
        let run = execute(&["sh", "-c", endless], Some(""), &Files::default(), 60);
        assert_eq!(run.progress, Progress::Running, "{endless}");
    }
    for busy in ["while true; do echo; done", "i=0; while true; do i=$((i+1)); done"] {
        let run = execute(&["sh", "-c", busy], Some(""), &Files::default(), 60);
        assert_eq!(run.progress, Progress::Ended(Duration::ZERO, 126), "{busy}");
        let (_, err) = printed(&run);
        assert!(err.contains("so many steps"), "{err}");
    }
}

#[test]
fn a_command_ended_by_timeout_prints_nothing_more() {
    for (child, out, err) in [
        ("echo a; echo b >&2; sleep 4; echo c; echo d >&2", "a\n143\n", "b\n"),
        ("echo a; while sleep 2; do echo b >&2; done", "a\n143\n", "b\n"),
        ("while :; do i=$((i+1)); done", "143\n", ""),
    ] {
        let script = format!("timeout 3 sh -c '{child}'; echo $?");
        let run = execute(&["sh", "-c", &script], Some(""), &Files::default(), 60);
        assert_eq!(printed(&run), (out.to_owned(), err.to_owned()), "{child}");
        assert_eq!(run.progress, Progress::Ended(Duration::from_secs(3), 0), "{child}");
    }
}

#[test]
fn bytes_that_are_not_utf8_count_once() {
    let input = crate::encoding::text(b"\xff\xfea\xc3\xa9");
    let run = execute(&["wc", "-c"], Some(&input), &Files::default(), 60);
    assert_eq!(printed(&run), ("5\n".to_owned(), String::new()));
}

#[test]
fn a_killed_job_prints_and_writes_nothing_more() {
    let script = "(echo a; sleep 5; echo b; echo c >&2; echo d > /tmp/x) & p=$!; \
                  (sleep 7; echo e >&2) & sleep 2; kill $p; wait; cat /tmp/x";
    let run = execute(&["sh", "-c", script], Some(""), &Files::default(), 60);
    let err = "e\ncat: can't open '/tmp/x': No such file or directory\n";
    assert_eq!(printed(&run), ("a\n".to_owned(), err.to_owned()));
    assert!(run.writes.is_empty() && run.outputs.iter().all(|output| !output.text.is_empty()));
}

#[test]
fn a_command_that_reads_input_waits_until_it_is_complete() {
    let table: [(&[&str], &str); 6] = [
        (&["sh", "-c", "cat > /tmp/f; cat /tmp/f"], "x\ny\n"),
        (&["sh", "-c", "cat | head -1"], "x\n"),
        (&["sh", "-c", "wc -l"], "2\n"),
        (&["sh", "-c", "echo $(cat)"], "x y\n"),
        (&["tee", "/tmp/f"], "x\ny\n"),
        (&["sh", "-c", "(cat /dev/stdin)"], "x\ny\n"),
    ];
    for (words, out) in table {
        let run = execute(words, None, &Files::default(), 60);
        assert_eq!(run.progress, Progress::NeedsInput, "{words:?}");
        let run = execute(words, Some("x\ny\n"), &Files::default(), 60);
        assert_eq!(printed(&run).0, out, "{words:?}");
    }
    let run = execute(&["sh", "-c", "echo a; cat <<E\nb\nE"], None, &Files::default(), 60);
    assert_eq!(printed(&run).0, "a\nb\n", "a command that does not read its input does not wait");
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(reads_commands(&words(&["/bin/sh"])) && reads_commands(&words(&["bash", "-i"])));
    assert!(!reads_commands(&words(&["sh", "-c", "ls"])) && !reads_commands(&words(&["ls"])));
    assert!(copies_input(&words(&["cat"])) && !copies_input(&words(&["cat", "f"])));
}

#[test]
fn tar_creates_and_extracts_archives() {
    let script = "mkdir -p /tmp/d/e; echo a > /tmp/d/f; echo b > /tmp/d/e/g; ";
    let table = [
        (
            "tar cf - /tmp/d | tar xmf - -C /data; cat /data/tmp/d/f; ls /data/tmp/d/e",
            0,
            "a\ng\n",
            "",
        ),
        ("cd /tmp; tar cf - d | tar -xmf - -C /data; cat /data/d/e/g", 0, "b\n", ""),
        ("tar cf - /tmp/none > /dev/null", 1, "", "tar: /tmp/none: No such file or directory\n"),
        (
            "tar xf - -C /nowhere < /tmp/d/f",
            1,
            "",
            "tar: can't change directory to '/nowhere': No such file or directory\n",
        ),
        ("tar xf - -C /data < /tmp/d/f", 1, "", "tar: short read\n"),
    ];
    for (line, code, out, err) in table {
        let text = format!("{script}{line}");
        let run = execute(&["sh", "-c", &text], Some(""), &Files::default(), 60);
        assert_eq!(printed(&run), (out.to_owned(), err.to_owned()), "{line}");
        assert_eq!(run.progress, Progress::Ended(Duration::ZERO, code), "{line}");
    }
    // No entry is extracted outside of the folder, and bytes that are not UTF-8 stay unchanged.
    let mut archive = tar::Builder::new(Vec::new());
    let content = [0, 159, 146, 150, 255, b'\n'];
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.as_mut_bytes()[..9].copy_from_slice(b"../../x/y");
    header.set_mode(0o644);
    header.set_cksum();
    archive.append(&header, &content[..]).unwrap();
    let archive = crate::encoding::text(&archive.into_inner().unwrap());
    let run = execute(&["tar", "xmf", "-", "-C", "/tmp"], Some(&archive), &Files::default(), 60);
    assert_eq!(run.progress, Progress::Ended(Duration::ZERO, 0));
    let written = run.writes.last().expect("a file");
    assert_eq!(&*written.path.path, "/tmp/x/y");
    let crate::Content::File(text) = written.content.clone().expect("content") else {
        panic!("a file")
    };
    assert_eq!(crate::encoding::bytes(&text), content);
}

#[test]
fn a_session_keeps_its_state_from_line_to_line() {
    let (files, node) = (Files::default(), Files::default());
    let mut session =
        ShellSession::new(Arc::new(environment()), "/bin/sh", true, Ipv4Addr::LOCALHOST);
    let seconds = Duration::from_secs;
    let table = [
        ("cd /tmp\n", "", "/tmp # "),
        ("x=1; f() { echo f$1; }\n", "", "/tmp # "),
        ("f $x\n", "f1\n", "/tmp # "),
        ("false\n", "", "/tmp # "),
        ("echo $?\n", "1\n", "/tmp # "),
        ("sleep 3 &\n", "", "/tmp # "),
        ("sleep 50 & p=$!\n", "", "/tmp # "),
        ("ls /nowhere\n", "ls: /nowhere: No such file or directory\n", "/tmp # "),
        (
            "fi\n",
            "evenkeel: a simulated container does not understand this: at \"fi\\n\": it does not fit there\n",
            "/tmp # ",
        ),
    ];
    for (n, (line, out, prompt)) in (0..).zip(table) {
        let run = format!("u1/c/0/exec/0/{n}");
        let context = context(&run, &files, &node);
        let (run, next) = session.run(line, Some("".into()), seconds(n), &context, seconds(99));
        assert_eq!(printed(&run), (out.to_owned(), String::new()), "{line}");
        session = next.expect("the session continues");
        assert_eq!(session.prompt(), prompt);
    }
    let context = context("u1/c/0/exec/0/9", &files, &node);
    let line = |line: &str| session.run(line, None, seconds(9), &context, seconds(99));
    assert_eq!(line("wait 7; echo done\n").0.progress, Progress::Ended(seconds(9), 0));
    let (run, _) = line("(sleep 1; echo job) & kill $p; wait\n");
    assert_eq!(printed(&run).0, "job\n", "only the job of an earlier line is killed");
    assert_eq!(line("sleep 5\n").0.progress, Progress::Ended(seconds(14), 0));
    assert_eq!(line("cat\n").0.progress, Progress::NeedsInput);
    let (run, next) = line("trap 'echo bye' EXIT; exit 3\n");
    assert_eq!((run.progress.clone(), next.is_none()), (Progress::Ended(seconds(9), 3), true));
    assert_eq!(printed(&run).0, "bye\n");
    for (text, more) in [
        ("ls\n", false),
        ("for i in 1 2; do\n", true),
        ("for i in 1 2; do\necho $i\n", true),
        ("for i in 1 2; do\necho $i\ndone\n", false),
        ("echo 'a\n", true),
        ("echo \"a\n", true),
        ("a \\\n", true),
        ("ls |\n", true),
        (")\n", false),
        ("\n", false),
    ] {
        assert_eq!(ShellSession::is_incomplete(text), more, "{text:?}");
    }
}
