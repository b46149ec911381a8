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

/// Checks that the flags resolve without errors, and that these gates have these values.
#[track_caller]
fn on(gates: &[&str], want: &[(&str, bool)]) {
    let resolved = resolve(&[], &[], gates);
    assert_eq!(resolved.errors, [""; 0], "{gates:?}");
    for (name, on) in want {
        assert_eq!(resolved.gates.enabled(name), *on, "{gates:?}: {name}");
    }
}

#[test]
fn gates_have_upstreams_defaults() {
    on(
        &[],
        &[
            ("WatchListClient", true),
            ("GenericWorkload", false),
            ("JobManagedBy", true),
            ("Nobodys", false),
        ],
    );
    // Off by default until all other components have this version.
    on(&[], &[("DRAFractionalCapacityRange", false)]);
    assert!(resolve(&[], &["1.37"], &[]).gates.enabled("DRAFractionalCapacityRange"));
}

#[test]
fn gates_can_be_set_one_by_one_and_by_stage() {
    on(&["GenericWorkload=true"], &[("GenericWorkload", true)]);
    on(&["kube:WatchListClient=false"], &[("WatchListClient", false)]);
    on(
        &["AllBeta=false", "WatchListClient=t"],
        &[("WatchListClient", true), ("APIServerIdentity", false)],
    );
}

#[test]
fn an_emulated_version_has_its_own_gates() {
    let old = resolve(&["1.35"], &[], &[]);
    assert_eq!(old.errors, [""; 0]);
    assert_eq!(old.gates.versions().min_compatibility.to_string(), "1.34");
    let stage = |gates: &FeatureGates, name: &str| {
        gates.iter().find(|(gate, ..)| *gate == name).map(|(_, stage, _)| stage)
    };
    assert_eq!(stage(&old.gates, "CompositePodGroup"), Some(Stage::PreAlpha));
    let error = &resolve(&["kube=1.35"], &[], &["CompositePodGroup=true"]).errors[0];
    assert_eq!(
        error,
        "cannot set feature gate CompositePodGroup to true, feature is PreAlpha at emulated version 1.35, \
         min compatibility version 1.34"
    );
}

#[test]
fn invalid_gates_are_refused_with_upstreams_messages() {
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
            resolve(emulated, least, gates).errors,
            [want],
            "{emulated:?} {least:?} {gates:?}"
        );
    }
    let both = resolve(&["1.30"], &[], &[]).errors;
    assert_eq!(both.len(), 2, "{both:?}");
}

#[test]
fn a_gate_that_will_be_removed_causes_a_warning() {
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

/// Upstream: `unsafeSetFromMap` in `component-base/featuregate`.
#[test]
fn stages_switch_their_own_gates_and_names_take_precedence() {
    let of_stage = |gates: &FeatureGates, wanted: Stage| -> Vec<(&str, bool)> {
        let all = gates.iter().filter(|(_, stage, _)| *stage == wanted);
        all.map(|(name, _, on)| (name, on)).collect()
    };
    let none = FeatureGates::default();
    for (flag, stage, other, on) in [
        ("AllBeta=true", Stage::Beta, Stage::Alpha, true),
        ("AllBeta=false", Stage::Beta, Stage::Alpha, false),
        ("AllAlpha=false", Stage::Alpha, Stage::Beta, false),
    ] {
        let special = flag.split('=').next().unwrap_or_default();
        let resolved = resolve(&[], &[], &[flag]);
        assert_eq!(resolved.errors, [""; 0], "{flag}");
        for (name, is) in of_stage(&resolved.gates, stage) {
            assert!(is == on || name.starts_with("All"), "{flag}: {name}");
        }
        let others = |gates: &FeatureGates| {
            let mut all = of_stage(gates, other);
            all.retain(|(name, _)| *name != special);
            all
        };
        assert_eq!(others(&resolved.gates), others(&none), "{flag}");
        for stage in [Stage::Stable, Stage::Deprecated] {
            assert_eq!(of_stage(&resolved.gates, stage), of_stage(&none, stage), "{flag}");
        }
    }
    // All alpha gates without their beta gates: four depend on GenericWorkload.
    let errors = resolve(&[], &[], &["AllAlpha=true"]).errors;
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(errors.iter().all(|why| why.ends_with("that are disabled: [GenericWorkload]")));
    let names = ["AllAlpha=true", "WorkloadWithJob=false", "GenericWorkload=true"];
    for order in [names, [names[2], names[0], names[1]], [names[1], names[2], names[0]]] {
        on(&order, &[("WorkloadWithJob", false), ("CompositePodGroup", true)]);
    }
}

#[test]
fn each_gate_can_be_set_unless_it_is_locked_or_lacks_a_dependency() {
    let gates = FeatureGates::default();
    for (name, stage, is_on) in gates.iter() {
        for on in [true, false] {
            let resolved = resolve(&[], &[], &[&format!("{name}={on}")]);
            if resolved.errors.is_empty() {
                continue;
            }
            let problem = resolved.errors.concat();
            let locked = matches!(stage, Stage::Stable | Stage::Deprecated)
                && on != is_on
                && problem
                    == format!(
                        "cannot set feature gate {name} to {on}, feature is locked to {is_on}"
                    );
            let too_new = stage == Stage::PreAlpha && problem.contains("feature is PreAlpha at");
            let depends =
                problem.contains("is enabled, but depends on features that are disabled: [");
            assert!(locked || too_new || depends, "{name}={on}: {problem}");
        }
    }
}

/// A cloud-controller-manager has none of the gates of `pkg/features`.
#[test]
fn stages_affect_the_gates_that_a_program_has() {
    let pair = |pair: &str| (String::new(), pair.to_owned());
    let resolved = FeatureGates::resolve_generic(&[pair("AllAlpha=true")]);
    assert_eq!(resolved.errors, [""; 0]);
    assert!(resolved.gates.enabled("CloudControllerManagerWebhook"));
    assert!(!resolved.gates.enabled("WorkloadWithJob"));
    for (name, stage, _) in resolved.gates.iter() {
        let is_open = matches!(stage, Stage::Alpha | Stage::Beta);
        assert!(is_open || !super::generic::is_generic(name), "{name} is of another stage by now");
    }
}
