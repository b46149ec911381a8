//! Effects of feature gates in each program. Upstream reads a gate in many places and programs. The table says for each
//! gate and program whether our program reads the gate, always behaves as if it were on, always behaves as if it were
//! off, or is not affected by it.

use super::{
    FeatureGates,
    table::{FeatureSpec, GATES},
};
use std::{collections::BTreeMap, sync::LazyLock};

const TABLE: &str = include_str!("../../data/gate-effects.tsv");

/// A program whose feature gates the table describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The program of the crate `evenkeel-controller-manager`.
    KubeControllerManager,
    /// The program of the crate `evenkeel-kube-scheduler`.
    KubeScheduler,
    /// The program of the crate `evenkeel-cloud`.
    CloudControllerManager,
}

/// Effect of a gate in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The program reads the gate wherever upstream's does.
    Whole,
    /// The program reads the gate, but not wherever upstream's does.
    Part,
    /// The program has the behavior that the gate controls, even if the gate is off.
    AlwaysOn,
    /// The program lacks the behavior that the gate controls, even if the gate is on.
    AlwaysOff,
    /// The gate belongs to other programs.
    Elsewhere,
}

impl Effect {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "effect" => Self::Whole,
            "partly" => Self::Part,
            "on" => Self::AlwaysOn,
            "off" => Self::AlwaysOff,
            "-" => Self::Elsewhere,
            _ => return None,
        })
    }
}

/// A gate's effects in the programs, in the order of [`Program`], and the reason if an effect is missing or partial.
struct GateEffects {
    effects: [Effect; 3],
    why: &'static str,
}

/// The table by gate. A row that cannot be read is missing, which a test finds.
static EFFECTS: LazyLock<BTreeMap<&'static str, GateEffects>> = LazyLock::new(|| {
    let rows = TABLE.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [gate, first, second, third, why] = *cells.as_slice() else { return None };
        let effects = [Effect::read(first)?, Effect::read(second)?, Effect::read(third)?];
        Some((gate, GateEffects { effects, why }))
    });
    rows.collect()
});

impl FeatureGates {
    /// Returns a warning for each gate that was set to a value without its effect in the program. A value that matches
    /// the program's behavior, or the default, needs no warning.
    pub fn warnings(&self, program: Program) -> Vec<String> {
        let warning = |(name, value): (&&'static str, &bool)| {
            let GateEffects { effects, why } = EFFECTS.get(*name)?;
            let default =
                GATES.get(*name)?.at(self.versions).map(|spec: &FeatureSpec| spec.default);
            match effects[program as usize] {
                Effect::AlwaysOn if !value => {}
                Effect::AlwaysOff if *value && default != Some(true) => {}
                Effect::Part if default != Some(*value) => {
                    return Some(format!(
                        "the feature gate {name}={value} has only a part of its effect here: {why}"
                    ));
                }
                _ => return None,
            }
            Some(format!(
                "the feature gate {name}={value} is accepted, but has no effect here: {why}"
            ))
        };
        self.set.iter().filter_map(warning).collect()
    }

    /// Returns the value that a gate was set to by its name. `AllAlpha` and `AllBeta` do not count.
    pub fn set_value(&self, gate: &str) -> Option<bool> {
        self.set.get(gate).copied().filter(|_| self.by_name.contains(gate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_is_in_the_table_with_a_reason_where_it_has_no_effect() {
        let rows = TABLE.lines().skip(1).map(|line| line.split('\t').next().unwrap_or_default());
        let rows: Vec<&str> = rows.collect();
        assert!(rows.is_sorted_by(|a, b| a < b), "sorted, and each gate once");
        assert!(EFFECTS.keys().copied().eq(rows.iter().copied()), "each row can be read");
        assert!(GATES.keys().copied().eq(rows.iter().copied()), "the gates of the program");
        for (gate, GateEffects { effects, why }) in EFFECTS.iter() {
            let explains_itself = effects.contains(&Effect::Whole)
                && effects.iter().all(|effect| matches!(effect, Effect::Whole | Effect::Elsewhere));
            assert!(explains_itself || !why.is_empty(), "{gate} has no reason");
        }
    }

    #[test]
    fn a_gate_that_is_set_without_its_effect_causes_one_warning() {
        let table: [(&str, Program, &[&str]); 10] = [
            ("StaleControllerConsistencyJob=false", Program::KubeControllerManager, &["no effect"]),
            ("StaleControllerConsistencyJob=true", Program::KubeControllerManager, &[]),
            ("StaleControllerConsistencyJob=false", Program::KubeScheduler, &[]),
            ("AtomicFIFO=false", Program::CloudControllerManager, &["no effect"]),
            ("ClientsAllowCBOR=true", Program::KubeScheduler, &["no effect"]),
            ("ClientsAllowCBOR=false", Program::KubeScheduler, &[]),
            ("OpportunisticBatching=false", Program::KubeScheduler, &[]),
            ("GenericWorkload=true", Program::KubeControllerManager, &["only a part"]),
            ("GenericWorkload=false", Program::KubeControllerManager, &[]),
            ("HPAScaleToZero=false", Program::KubeControllerManager, &[]),
        ];
        for (setting, program, expected) in table {
            let mut settings = vec![(String::new(), setting.to_owned())];
            if setting.starts_with("AtomicFIFO") {
                // Other gates depend on it.
                settings.push((String::new(), "AllBeta=false".to_owned()));
            }
            let resolved = FeatureGates::resolve(&[], &[], &settings);
            assert_eq!(resolved.errors, [""; 0], "{setting}");
            let name = setting.split('=').next().unwrap_or_default();
            let mut warnings = resolved.gates.warnings(program);
            warnings.retain(|warning| warning.contains(&format!(" {name}=")));
            assert_eq!(warnings.len(), expected.len(), "{setting}: {warnings:?}");
            for (warning, part) in warnings.iter().zip(expected) {
                assert!(warning.contains(part) && warning.contains(": "), "{warning}");
            }
        }
    }
}
