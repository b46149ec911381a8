use super::*;
use crate::webhook::certificates::issue::issue;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn names() -> Names {
    Names::new("hooks".into(), "default".into(), None).unwrap()
}

fn made(renewal: Renewal, material: Option<&Material>, now: &str) -> Material {
    issue(renewal, material, &names(), time(now)).unwrap()
}

/// Returns the renewal that is due, or the date of the next one.
fn due(material: &Material, now: &str) -> Result<Renewal, String> {
    match decide(Some(material), &names(), time(now)) {
        Decision::Renew(renewal, _) => Ok(renewal),
        Decision::Keep(until) => Err(until.to_string()[..10].to_owned()),
    }
}

#[test]
fn certificates_are_renewed_after_two_thirds_of_their_life() {
    let first = made(Renewal::Everything, None, "2026-01-01T00:00:00Z");
    let keep = |until: &str| Err(until.to_owned());
    for (now, expected) in [
        ("2026-01-01T00:00:00Z", keep("2026-09-01")),
        ("2025-12-31T23:50:00Z", keep("2026-09-01")),
        ("2026-08-31T00:00:00Z", keep("2026-09-01")),
        ("2026-09-01T12:00:00Z", Ok(Renewal::Serving)),
        ("2030-01-01T00:00:00Z", Ok(Renewal::Serving)),
        ("2035-12-29T22:00:00Z", Ok(Renewal::Serving)),
        ("2035-12-29T23:30:00Z", Ok(Renewal::Everything)),
        ("2040-01-01T00:00:00Z", Ok(Renewal::Everything)),
    ] {
        assert_eq!(due(&first, now), expected, "{now}");
    }
    assert_eq!(
        decide(None, &names(), time("2026-01-01T00:00:00Z")),
        Decision::Renew(Renewal::Everything, "there is no Secret".to_owned())
    );
    let later = made(Renewal::Serving, Some(&first), "2032-12-01T00:00:00Z");
    assert_eq!(later.authorities, first.authorities);
    for (now, expected) in [
        ("2032-08-01T00:00:00Z", keep("2032-08-30")),
        ("2032-12-01T00:00:00Z", Ok(Renewal::Authority)),
        ("2033-12-01T00:00:00Z", Ok(Renewal::Serving)),
    ] {
        assert_eq!(due(&later, now), expected, "{now}");
    }
    let rotated = made(Renewal::Authority, Some(&later), "2032-12-01T00:00:00Z");
    assert_eq!(rotated.certificate, later.certificate, "the old CA's signature stays in use");
    assert_eq!(due(&rotated, "2032-12-01T00:00:00Z"), keep("2033-08-01"));
    let signed = made(Renewal::Serving, Some(&rotated), "2035-08-01T00:00:00Z");
    assert_eq!(due(&signed, "2035-08-01T00:00:00Z"), keep("2035-12-30"), "the old CA's end");
    assert_eq!(due(&signed, "2035-12-30T01:00:00Z"), Ok(Renewal::Bundle));
    let cleaned = made(Renewal::Bundle, Some(&signed), "2035-12-30T01:00:00Z");
    assert_eq!(cleaned.authorities().len(), 1);
    assert_eq!(due(&cleaned, "2035-12-30T01:00:00Z"), keep("2036-03-31"));
}

#[test]
fn damaged_content_is_made_anew() {
    let now = "2026-01-01T00:00:00Z";
    let (good, other) =
        (made(Renewal::Everything, None, now), made(Renewal::Everything, None, now));
    let elsewhere = Names::new("hooks".into(), "other".into(), None).unwrap();
    let elsewhere = issue(Renewal::Everything, None, &elsewhere, time(now)).unwrap();
    let with_garbage =
        [&good.authorities[..], b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
            .concat();
    let with_leaf = [&good.authorities[..], &good.certificate].concat();
    for (name, material, expected) in [
        ("empty", Material::default(), Renewal::Everything),
        (
            "another CA's key",
            Material { authority_key: other.authority_key.clone(), ..good.clone() },
            Renewal::Everything,
        ),
        (
            "no certificate of a CA",
            Material { authorities: good.certificate.clone(), ..good.clone() },
            Renewal::Everything,
        ),
        ("no key", Material { key: Vec::new(), ..good.clone() }, Renewal::Serving),
        ("another key", Material { key: other.key.clone(), ..good.clone() }, Renewal::Serving),
        (
            "signed by another CA",
            Material {
                certificate: other.certificate.clone(),
                key: other.key.clone(),
                ..good.clone()
            },
            Renewal::Serving,
        ),
        ("another Service", elsewhere, Renewal::Serving),
        (
            "no certificate in the bundle",
            Material { authorities: with_garbage, ..good.clone() },
            Renewal::Bundle,
        ),
        (
            "no CA in the bundle",
            Material { authorities: with_leaf, ..good.clone() },
            Renewal::Bundle,
        ),
    ] {
        assert_eq!(due(&material, now), Ok(expected), "{name}");
        let renewed = made(expected, Some(&material), now);
        assert_eq!(due(&renewed, now), Err("2026-09-01".to_owned()), "{name}");
    }
}

/// Renews certificates at a time until none is due, and returns the renewals.
fn settle(mut material: Option<Material>, now: Timestamp) -> (Material, Vec<Renewal>) {
    let mut renewals = Vec::new();
    loop {
        match decide(material.as_ref(), &names(), now) {
            Decision::Keep(_) => return (material.unwrap(), renewals),
            Decision::Renew(renewal, reason) => {
                assert!(renewals.len() < 4, "{renewals:?} does not settle: {reason}");
                renewals.push(renewal);
                material = Some(issue(renewal, material.as_ref(), &names(), now).unwrap());
            }
        }
    }
}

#[test]
fn clients_trust_each_new_certificate_before_it_is_served() {
    for days_between_checks in [1, 20, 100, 200] {
        let (mut now, mut all) = (time("2026-01-01T00:00:00Z"), Vec::new());
        let (mut material, _) = settle(None, now);
        while now < time("2049-01-01T00:00:00Z") {
            now += SignedDuration::from_hours(24 * days_between_checks);
            let (next, renewals) = settle(Some(material.clone()), now);
            // Clients have the bundle of the previous check.
            let client = Material { authorities: material.authorities, ..next.clone() };
            assert!(client.check_serving(&names(), now).is_ok(), "{now}: {renewals:?}");
            assert!(next.authorities().len() <= 2, "{now}");
            (material, all) = (next, [all, renewals].concat());
        }
        let count = |kind| all.iter().filter(|renewal| **renewal == kind).count();
        assert_eq!(count(Renewal::Everything), 0, "{days_between_checks}");
        assert_eq!(
            (count(Renewal::Authority), count(Renewal::Bundle)),
            (3, 2),
            "{days_between_checks}"
        );
    }
}
