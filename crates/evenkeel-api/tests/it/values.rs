use evenkeel_api::{
    Kind, Map, Meta, OwnerReference, StrMap, condition,
    int_or_string::{IntOrString, Rounding},
    time::{self, Timestamp},
    views::DeploymentCondition,
};
use proptest::prelude::*;

#[test]
fn percentages_round_as_upstream() {
    let percent = |text: &str| IntOrString::String(text.into());
    for (value, total, up, down) in [
        (IntOrString::Int(7), 100, 7, 7),
        (percent("25%"), 10, 3, 2),
        (percent("0%"), 10, 0, 0),
        (percent("100%"), 3, 3, 3),
        (percent("1%"), 1, 1, 0),
        (percent("150%"), 3, 5, 4),
        (percent("-50%"), 3, -1, -2),
        (percent("33%"), 0, 0, 0),
    ] {
        assert_eq!(
            (value.scaled(total, Rounding::Up), value.scaled(total, Rounding::Down)),
            (Ok(up), Ok(down)),
            "{value} of {total}"
        );
    }
    for text in ["", "5", "%", "a%", "5%%", "http"] {
        assert!(percent(text).scaled(1, Rounding::Up).is_err(), "{text}");
    }
}

#[test]
fn conditions_are_set_and_removed() {
    let make = |type_: &str, status: &str, reason: &str, second: i64| DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        last_transition_time: Timestamp::from_second(second).ok(),
        ..DeploymentCondition::default()
    };
    let old = [make("A", "True", "r", 1), make("B", "False", "r", 1)];
    assert_eq!(condition::with(&old, make("A", "True", "r", 9)), None);
    let same_status = condition::with(&old, make("A", "True", "other", 9)).unwrap();
    assert_eq!(
        condition::find(&same_status, "A").unwrap().last_transition_time,
        Timestamp::from_second(1).ok()
    );
    let flipped = condition::with(&old, make("A", "False", "r", 9)).unwrap();
    assert_eq!(
        condition::find(&flipped, "A").unwrap().last_transition_time,
        Timestamp::from_second(9).ok()
    );
    assert_eq!(flipped.len(), 2);
    assert!(
        condition::is_true(&old, "A")
            && !condition::is_true(&old, "B")
            && !condition::is_true(&old, "C")
    );
    assert_eq!(condition::with(&old, make("C", "True", "", 1)).unwrap().len(), 3);
    assert_eq!(condition::without(&old, "A").len(), 1);
}

#[test]
fn owner_references_as_json() {
    let kind = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
    let meta = Meta { name: "a\"b".into(), uid: "u".into(), ..Meta::default() };
    let owner = OwnerReference::controlled_by(&kind, &meta);
    assert_eq!(
        owner.to_json(),
        r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a\"b","uid":"u","controller":true,"blockOwnerDeletion":true}"#
    );
    let owned = Meta { owners: [owner].into(), ..Meta::default() };
    assert!(owned.is_controlled_by("u") && !owned.is_controlled_by("v"));
}

proptest! {
    #[test]
    fn times_round_trip(second in -62_135_596_799i64..253_402_300_799, micro in 0i32..1_000_000) {
        let whole = Timestamp::from_second(second).unwrap();
        let text = time::seconds(whole);
        prop_assert_eq!(time::parse(&text).unwrap(), whole);
        prop_assert_eq!(text.parse::<Timestamp>().unwrap(), whole);
        let fine = Timestamp::new(second, micro * 1000).unwrap();
        prop_assert_eq!(time::parse(&time::micros(fine)).unwrap(), fine);
    }

    #[test]
    fn times_parse_as_in_jiff(text in "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
        prop_assert_eq!(time::parse(&text).ok(), text.parse::<Timestamp>().ok());
    }

    #[test]
    fn maps_keep_the_last_of_equal_keys(pairs in prop::collection::vec(("[a-c]", 0..9), 0..8)) {
        let expected: std::collections::BTreeMap<String, i32> = pairs.iter().cloned().collect();
        let map: Map<i32> = pairs.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        prop_assert!(map.iter().eq(expected.iter().map(|(k, v)| (k.as_str(), v))));
        let map: StrMap = pairs.iter().map(|(k, v)| (k.as_str(), v.to_string())).collect();
        prop_assert!(expected.iter().all(|(k, v)| map.get(k) == Some(&v.to_string())));
        prop_assert_eq!(map.len(), expected.len());
    }

    #[test]
    fn rounded_percentages_enclose_the_exact_value(percent in 0i32..200, total in 0i32..10_000) {
        let share = IntOrString::String(format!("{percent}%").into());
        let (up, down) = (share.scaled(total, Rounding::Up).unwrap(), share.scaled(total, Rounding::Down).unwrap());
        prop_assert!(up == down || up == down + 1);
        prop_assert_eq!(up == down, percent * total % 100 == 0);
        prop_assert!(down * 100 <= percent * total && percent * total <= up * 100);
    }
}
