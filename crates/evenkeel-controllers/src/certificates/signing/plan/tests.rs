use super::*;
use crate::{
    certificates::{
        request::tests::pem,
        signing::{
            Pair,
            authority::{PemTexts, tests::authority},
        },
    },
    fixtures::{T0, at, object},
};
use base64::prelude::*;
use evenkeel_runtime::plan::Action;
use proptest::prelude::*;
use serde_json::{Value, json};

const HOUR: u64 = 3600;

fn request(signer: &str, usages: &[&str], status: &Value) -> SigningRequest {
    object(&json!({
        "metadata": {"name": "a"},
        "spec": {"request": BASE64_STANDARD.encode(pem("team", "me", &[])), "signerName": signer, "usages": usages},
        "status": status,
    }))
}

fn conditions(all: &[(&str, &str)]) -> Value {
    let all: Vec<Value> =
        all.iter().map(|(type_, status)| json!({"type": type_, "status": status})).collect();
    json!({"conditions": all})
}

fn client(status: &Value) -> SigningRequest {
    request(Signer::KubeApiserverClient.name(), &["client auth"], status)
}

#[test]
fn only_approved_pending_requests_are_signed() {
    let approved = conditions(&[("Approved", "True")]);
    let mut done = approved.clone();
    done["certificate"] = json!("QQ==");
    let table: [(Value, bool); 7] = [
        (json!({}), false),
        (approved.clone(), true),
        (conditions(&[("Approved", "True"), ("Denied", "True")]), false),
        (conditions(&[("Approved", "True"), ("Failed", "True")]), false),
        (conditions(&[("Approved", "True"), ("Failed", "")]), false),
        (conditions(&[("Approved", "True"), ("Failed", "False")]), true),
        (done, false),
    ];
    for (status, expected) in table {
        let decision = decide(&client(&status), &Signer::ALL).unwrap();
        assert_eq!(
            matches!(decision, Decision::Sign { signer: Signer::KubeApiserverClient, .. }),
            expected,
            "{status}: {decision:?}"
        );
    }
    // Requests to an unknown signer, and to a signer without a key.
    let other = request("example.test/signer", &["client auth"], &approved);
    assert_eq!(decide(&other, &Signer::ALL), Ok(Decision::Nothing));
    assert_eq!(decide(&client(&approved), &[Signer::LegacyUnknown]), Ok(Decision::Nothing));
}

#[test]
fn each_signer_has_its_own_rules() {
    let approved = conditions(&[("Approved", "True")]);
    let refusal = |message: &str| Decision::Fail(message.to_owned());
    let organization = "subject organization is not system:nodes";
    let table = [
        (
            Signer::KubeApiserverClientKubelet,
            &["client auth", "digital signature"][..],
            refusal(organization),
        ),
        (Signer::KubeletServing, &["server auth", "digital signature"], refusal(organization)),
        (
            Signer::KubeApiserverClient,
            &["client auth", "server auth"],
            refusal("invalid usage for client certificate: server auth"),
        ),
        (
            Signer::KubeApiserverClient,
            &["digital signature"],
            refusal("missing required usage for client certificate: client auth"),
        ),
        (
            Signer::KubeApiserverClient,
            &[],
            refusal("missing required usage for client certificate: client auth"),
        ),
    ];
    for (signer, usages, expected) in table {
        let decision = decide(&request(signer.name(), usages, &approved), &Signer::ALL);
        assert_eq!(decision, Ok(expected), "{signer:?} {usages:?}");
    }
    let anything = request(Signer::LegacyUnknown.name(), &["cert sign"], &approved);
    assert!(matches!(
        decide(&anything, &Signer::ALL),
        Ok(Decision::Sign { signer: Signer::LegacyUnknown, .. })
    ));
}

#[test]
fn lifetime_is_bounded_by_the_flag_and_ten_minutes() {
    let year = Duration::from_secs(8760 * HOUR);
    let table = [
        (None, year, 8760 * HOUR),
        (Some(3600), year, HOUR),
        (Some(599), year, 600),
        (Some(-1), year, 600),
        (Some(i32::MAX), year, 8760 * HOUR),
        // The flag's duration is not raised to the minimum of requested ones.
        (None, Duration::from_secs(60), 60),
        (Some(30), Duration::from_secs(60), 600),
        (Some(90), Duration::from_secs(60), 60),
    ];
    for (requested, max_duration, expected) in table {
        assert_eq!(
            lifetime(requested, max_duration).as_secs(),
            expected,
            "{requested:?} {max_duration:?}"
        );
    }
}

#[test]
fn validity_is_backdated_and_ends_with_the_signer() {
    let hours = |hours: u64| Duration::from_secs(hours * HOUR);
    let far = at(1_000_000_000);
    let ends = |seconds| Ok(Validity { not_before: at(-300), not_after: at(seconds) });
    assert_eq!(validity(hours(1), far, T0), ends(3600));
    assert_eq!(validity(hours(8), far, T0), ends(8 * 3600 - 300));
    assert_eq!(validity(hours(8), at(60), T0), ends(60));
    assert_eq!(validity(hours(8), at(-10), T0), Err(ExpiredError::Certificate(at(-10))));
    assert_eq!(validity(hours(8), at(-300), T0), Err(ExpiredError::Signer(at(-300))));
}

#[test]
fn failed_condition_has_reason_and_message() {
    let request = client(&conditions(&[("Approved", "True")]));
    let status = with_failed_condition(&request, "because", T0).status.unwrap();
    let last = &status.conditions.unwrap()[1];
    assert_eq!(
        (&*last.type_, &*last.status, last.reason.as_deref()),
        ("Failed", "True", Some("SignerValidationFailure"))
    );
    assert_eq!(
        (last.message.as_deref(), last.last_update_time.as_ref().unwrap().0),
        (Some("because"), T0)
    );
}

/// Returns the observed state of a request to a signer with a key.
fn observed(request: SigningRequest, serial: Option<Serial>) -> Observed {
    let decision = decide(&request, &Signer::ALL);
    let issuer = Issuer { authority: Arc::new(authority_with_key()), serial };
    let max_duration = Duration::from_secs(HOUR);
    Observed { request: Arc::new(request), decision, issuer: Some(issuer), max_duration }
}

fn authority_with_key() -> CertificateAuthority {
    let Pair::Texts { certificate, key } = authority(10) else { panic!("texts") };
    let texts = PemTexts { certificate: certificate.into_bytes(), key: key.into_bytes() };
    CertificateAuthority::new(&texts).unwrap()
}

fn written(plan: &Plan) -> CertificateSigningRequest {
    let [Action::Update(update)] = &plan.actions[..] else { panic!("{plan:?}") };
    assert_eq!((update.subresource, &*update.target.name), ("status", "a"));
    serde_json::from_slice(&update.body).unwrap()
}

#[test]
fn approved_request_gets_a_certificate() {
    let request = || client(&conditions(&[("Approved", "True")]));
    let signed = written(&plan(&observed(request(), Some([7; 16])), T0));
    let certificate = signed.status.unwrap().certificate.unwrap();
    assert!(certificate.0.starts_with(b"-----BEGIN CERTIFICATE-----"));
    let failed = plan(&observed(request(), None), T0);
    assert_eq!(failed, Plan::failure(SignError::RandomNumbers.to_string()));
}

#[test]
fn invalid_request_fails_and_pending_one_is_skipped() {
    let approved = conditions(&[("Approved", "True")]);
    let invalid =
        observed(request(Signer::KubeApiserverClient.name(), &[], &approved), Some([7; 16]));
    let conditions = written(&plan(&invalid, T0)).status.unwrap().conditions.unwrap();
    assert_eq!(conditions[1].type_, "Failed");
    assert_eq!(plan(&observed(client(&json!({})), None), T0), Plan::nothing());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn validity_contains_now_and_is_bounded(
        requested in proptest::option::of(any::<i32>()), max_duration in 1u64..1_000_000_000,
        signer in -1000i64..2_000_000_000,
    ) {
        let max_duration = Duration::from_secs(max_duration);
        let lifetime = lifetime(requested, max_duration);
        prop_assert!(lifetime <= max_duration.max(MIN_DURATION));
        match validity(lifetime, at(signer), T0) {
            Ok(Validity { not_before, not_after }) => {
                prop_assert!(not_before < T0 && T0 < not_after.max(at(1)) && not_after <= at(signer));
                prop_assert!(not_after <= at(i64::try_from(lifetime.as_secs()).unwrap()));
            }
            Err(_) => prop_assert!(signer <= 0),
        }
    }
}
