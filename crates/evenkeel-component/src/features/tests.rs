use super::*;

fn resolve(emulated: &[&str], least: &[&str], gates: &[&str]) -> Resolved {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let pair = |gate: &&str| {
        let (component, pair) = gate.split_once(':').unwrap_or(("", gate));
        (component.to_owned(), pair.to_owned())
    };
    let gates: Vec<_> = gates.iter().map(pair).collect();
    FeatureGates::resolve(&texts(emulated), &texts(least), &gates)
}

#[track_caller]
fn on(gates: &[&str], want: &[(&str, bool)]) {
    let resolved = resolve(&[], &[], gates);
    assert_eq!(resolved.problems, [""; 0], "{gates:?}");
    for (name, on) in want {
        assert_eq!(resolved.gates.enabled(name), *on, "{gates:?}: {name}");
    }
}

#[test]
fn gates_are_as_upstream_has_them_by_default() {
    on(
        &[],
        &[
            ("WatchListClient", true),
            ("GenericWorkload", false),
            ("JobManagedBy", true),
            ("Nobodys", false),
        ],
    );
    // Off by default until all others are of this version.
    on(&[], &[("DRAFractionalCapacityRange", false)]);
    assert!(resolve(&[], &["1.37"], &[]).gates.enabled("DRAFractionalCapacityRange"));
}

#[test]
fn gates_can_be_set_one_by_one_and_by_stage() {
    on(&["GenericWorkload=true", "kube:x=y"][..1], &[("GenericWorkload", true)]);
    on(&["kube:WatchListClient=false"], &[("WatchListClient", false)]);
    on(
        &["AllBeta=false", "WatchListClient=t"],
        &[("WatchListClient", true), ("APIServerIdentity", false)],
    );
}

#[test]
fn an_emulated_version_has_the_gates_of_its_time() {
    let old = resolve(&["1.35"], &[], &[]);
    assert_eq!(old.problems, [""; 0]);
    assert_eq!(old.gates.versions().min_compatibility.to_string(), "1.34");
    let stage = |gates: &FeatureGates, name: &str| {
        gates.iter().find(|(gate, ..)| *gate == name).map(|(_, stage, _)| stage)
    };
    assert_eq!(stage(&old.gates, "CompositePodGroup"), Some(Stage::PreAlpha));
    let error = &resolve(&["kube=1.35"], &[], &["CompositePodGroup=true"]).problems[0];
    assert_eq!(
        error,
        "cannot set feature gate CompositePodGroup to true, feature is PreAlpha at emulated version 1.35, \
         min compatibility version 1.34"
    );
}

#[test]
fn what_cannot_be_is_refused_in_upstreams_words() {
    for (emulated, least, gates, want) in [
        (&[][..], &[][..], &["Nope=true"][..], "unrecognized feature gate: Nope"),
        (&[], &[], &["GenericWorkload"], "missing bool value for GenericWorkload"),
        (
            &[],
            &[],
            &["GenericWorkload=maybe"],
            "invalid value of GenericWorkload=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
        ),
        (&[], &[], &["other:X=true"], "component not registered: other"),
        (
            &[],
            &[],
            &["kube:AllAlpha=true", "AllBeta=true"],
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
        ),
        (
            &[],
            &[],
            &["JobManagedBy=false"],
            "cannot set feature gate JobManagedBy to false, feature is locked to true",
        ),
        (
            &[],
            &[],
            &["WorkloadWithJob=true"],
            "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (&["1.38"], &[], &[], "emulation version 1.38 is not between [1.34, 1.37.0]"),
        (&["x"], &[], &[], "could not parse \"x\" as version"),
        (&["1.36.1"], &[], &[], "patch version not allowed, got: kube=1.36.1"),
        (&["other=1.36"], &[], &[], "component not registered: other"),
        (&["1.36", "1.37"], &[], &[], "duplicate version flag, kube=1.36 and kube=1.37"),
        (&[], &["1.30"], &[], "minCompatibilityVersion version 1.30 is not between [1.34, 1.37]"),
        (
            &["1.35"],
            &["1.36"],
            &[],
            "minCompatibilityVersion version 1.36 is not between [1.34, 1.35]",
        ),
    ] {
        assert_eq!(
            resolve(emulated, least, gates).problems,
            [want],
            "{emulated:?} {least:?} {gates:?}"
        );
    }
    let both = resolve(&["1.30"], &[], &[]).problems;
    assert_eq!(both.len(), 2, "{both:?}");
}

#[test]
fn a_gate_that_will_go_is_warned_of() {
    let resolved = resolve(&[], &[], &["JobManagedBy=true"]);
    assert!(resolved.warnings[0].contains("JobManagedBy=true"), "{:?}", resolved.warnings);
}

#[test]
fn the_metric_has_a_series_for_each_gate() {
    let registry = Registry::new();
    FeatureGates::default().register(&registry).expect("a new registry");
    let families = registry.gather();
    assert_eq!(families.len(), 1);
    assert_eq!(families[0].get_metric().len(), GATES.len());
}

#[test]
fn the_options_are_those_of_the_recorded_help() {
    let recorded = include_str!("../../data/recorded-gate-options.tsv");
    let ours = options();
    assert_eq!(ours.lines().count(), recorded.lines().count());
    for (line, recorded) in ours.lines().zip(recorded.lines()) {
        let cells: Vec<&str> = recorded.split('\t').collect();
        let want = format!("kube:{}=true|false ({} - default={})", cells[0], cells[1], cells[2]);
        assert!(line.starts_with(&want), "{line}, recorded as {recorded}");
    }
}
