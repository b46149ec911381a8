use super::*;
use crate::scripted::{Answer, Script};
use serde_json::{Value, json};

const TIMES: ReviewCacheTtls = ReviewCacheTtls {
    token: Duration::from_secs(10),
    granted: Duration::from_secs(20),
    denied: Duration::from_secs(5),
};

fn reviews(answers: Vec<Answer>, times: ReviewCacheTtls) -> (ReviewClient, Script, Clock) {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let script = Script::new(answers);
    (ReviewClient::new(script.client(&clock), clock.clone(), times), script, clock)
}

fn status(status: &Value) -> Answer {
    Answer::new(201, json!({"status": status}).to_string())
        .header("content-type", "application/json")
}

fn failure(code: u16, reason: &str) -> Answer {
    let body = json!({"kind": "Status", "code": code, "reason": reason, "message": reason});
    Answer::new(code, body.to_string()).header("content-type", "application/json")
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn token_reviews_are_cached_for_their_time_to_live() {
    let jane = json!({"authenticated": true, "user": {
        "username": "jane", "uid": "7", "groups": ["dev"], "extra": {"scope": ["all"]},
    }});
    let answers =
        vec![status(&jane), status(&json!({})), status(&json!({"error": "no such token"}))];
    let (reviews, script, clock) = reviews(answers, TIMES);
    for _ in 0..2 {
        let user = reviews.authenticate_token("a").await.unwrap().unwrap();
        assert_eq!(
            (&*user.name, &*user.uid, &*user.groups),
            ("jane", "7", &["dev".to_owned()][..])
        );
        assert_eq!(user.extra["scope"], ["all"]);
    }
    assert_eq!(script.seen().len(), 1);
    clock.sleep(seconds(11)).await;
    for _ in 0..2 {
        assert_eq!(
            reviews.authenticate_token("a").await.unwrap(),
            None,
            "an invalid token is cached, too"
        );
    }
    assert_eq!(reviews.authenticate_token("b").await.unwrap_err(), "no such token");
    assert_eq!(script.seen().len(), 3);
    // An error is not cached.
    assert!(tokio::time::timeout(seconds(5), reviews.authenticate_token("b")).await.is_err());
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn access_reviews_are_cached_by_their_result() {
    let granted = || status(&json!({"allowed": true}));
    let denied = || status(&json!({"allowed": false, "reason": "no rule"}));
    let (reviews, script, clock) = reviews(vec![granted(), denied(), denied()], TIMES);
    let jane = User { name: "jane".to_owned(), ..User::default() };
    assert!(reviews.review_access(&jane, "get", "/a").await.unwrap().allowed);
    assert_eq!(reviews.review_access(&jane, "put", "/a").await.unwrap().reason, "no rule");
    clock.sleep(seconds(4)).await;
    assert!(!reviews.review_access(&jane, "put", "/a").await.unwrap().allowed);
    assert_eq!(script.seen().len(), 2);
    clock.sleep(seconds(2)).await;
    assert!(reviews.review_access(&jane, "get", "/a").await.unwrap().allowed);
    assert_eq!(script.seen().len(), 2);
    assert!(!reviews.review_access(&jane, "put", "/a").await.unwrap().allowed);
    assert_eq!(script.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_time_to_live_of_zero_disables_the_cache() {
    let disabled = ReviewCacheTtls { token: seconds(0), granted: seconds(0), denied: seconds(0) };
    let granted = || status(&json!({"allowed": true}));
    let (reviews, script, _) = reviews(vec![granted(), granted(), granted()], disabled);
    let jane = User { name: "jane".to_owned(), ..User::default() };
    for n in 1..3 {
        reviews.review_access(&jane, "get", "/a").await.unwrap();
        assert_eq!(script.seen().len(), n);
    }
    let (reviews, script, _) = self::reviews(vec![granted(), granted()], TIMES);
    let long = format!("/{}", "x".repeat(MAX_CACHED_REQUEST_SIZE));
    for n in 1..3 {
        reviews.review_access(&jane, "get", &long).await.unwrap();
        assert_eq!(script.seen().len(), n, "a large request is not cached");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_retried() {
    let transient = || failure(500, "InternalError");
    let jane = User { name: "jane".to_owned(), ..User::default() };
    let table = [
        (vec![transient(), transient(), status(&json!({"allowed": true}))], true, 3),
        (
            vec![transient(), transient(), transient(), transient(), transient(), transient()],
            false,
            5,
        ),
        (vec![failure(403, "Forbidden"), status(&json!({"allowed": true}))], false, 1),
    ];
    for (answers, expected, attempts) in table {
        let (reviews, script, _) = reviews(answers, TIMES);
        let answer = reviews.review_access(&jane, "get", "/a").await;
        assert_eq!(answer.is_ok(), expected, "{answer:?}");
        assert_eq!(script.seen().len(), attempts);
    }
    // A request to a server that never responds times out.
    let (reviews, ..) = self::reviews(Vec::new(), TIMES);
    assert!(reviews.review_access(&jane, "get", "/a").await.unwrap_err().contains("no answer"));
}
