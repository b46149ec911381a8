//! Fuzz targets for responses of webhooks: admission, with an object that a patch changes, and conversion.

use evenkeel_api::json;
use evenkeel_apiextensions::conversion::ConversionWebhook;
use evenkeel_apiserver::fuzz;
use serde_json::{Value, json};

use crate::input;

/// Reads the first part as a response and the second as an object. Checks that a patched object is not too deep,
/// and that a converted object has the desired version.
pub(crate) fn webhook(data: &[u8]) {
    let mut parts = input::parts(data);
    let mut value = || parts.next().and_then(|part| json::from_slice::<Value>(part).ok());
    let Some(answer) = value() else { return };
    let object = value().unwrap_or_else(|| json!({"metadata": {"name": "a"}}));
    if let Some(patched) = fuzz::admission_answer("u", &answer, &object) {
        input::assert_depth(&patched);
    }
    for version in ["v1", "v1beta1"] {
        let definition = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": [version], "clientConfig": {}}}}});
        let webhook = ConversionWebhook::of(&definition).expect("the definition has a webhook");
        let objects = [object.clone()];
        let converted = webhook.converted("u", Ok(answer.clone()), &objects, "example.com/v2");
        if let Ok(converted) = converted {
            assert_eq!(converted.len(), 1);
            assert_eq!(converted[0]["apiVersion"], "example.com/v2");
        }
    }
}
