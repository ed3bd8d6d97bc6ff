//! Tokens: hashed at rest, revoked at once, limited in their rate.

use counterfoil::Tenant;
use counterfoil::api::{Api, Role};
use counterfoil::ledger::Rate;
use counterfoil::store::Store as _;
use reqwest::Method;
use serde_json::json;

use super::Served;
use crate::on_both_stores;
use crate::place::Place;

on_both_stores! {
    async fn a_revoked_token_is_refused_from_the_next_request_on(place) {
        let served = Served::on(&place).await;
        let admin = served.token(Role::Admin, "*").await;
        let token = served.token(Role::Read, "acme").await;
        assert_eq!(served.get("/runs", &token).await.0, 200);
        let id = &token[4..20];
        let (status, _) = served.post(&format!("/tokens/{id}/revoke"), &admin, "k", json!({ "reason": "lost" })).await;
        assert_eq!(status, 200);
        assert_eq!(served.get("/runs", &token).await.0, 401);
        let (_, tokens) = served.get("/tokens", &admin).await;
        let listed = tokens["items"].as_array().unwrap();
        let revoked = listed.iter().find(|listed| listed["id"] == id).unwrap();
        assert_eq!(revoked["revoked_by"], "ann");
        assert_eq!((listed.len(), &revoked["role"]), (2, &json!("read")));
        assert_eq!(served.post("/tokens/none/revoke", &admin, "k", json!({ "reason": "lost" })).await.0, 404);
        served.end().await;
    }
}

#[tokio::test]
async fn the_ledger_holds_no_token_and_a_token_with_another_secret_is_refused() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let token = served.token(Role::Admin, "*").await;
    let forged = format!("{}0", &token[..token.len() - 1]);
    let forged = if forged == token { format!("{}1", &token[..token.len() - 1]) } else { forged };
    assert_eq!(served.get("/tokens", &forged).await.0, 401);
    served.end().await;
    let Place::Sqlite(dir) = &place else { unreachable!() };
    let store = counterfoil::store::sqlite::Sqlite::open(dir.path().join("agents.db")).await.unwrap();
    let rows = store.document_list(&Tenant::ledger(), "api_token", "", 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    let secret = token.rsplit('_').next().unwrap();
    assert!(!rows[0].body.contains(secret), "{}", rows[0].body);
}

#[tokio::test]
async fn a_caller_beyond_its_rate_is_told_when_to_come_again_and_others_are_not() {
    let place = Place::sqlite();
    let served = Served::with(&place, |api: Api| api.rate(Rate::per_minute(1).burst(2)).router()).await;
    let (hasty, other) = (served.token(Role::Read, "acme").await, served.token(Role::Read, "other").await);
    assert_eq!(served.get("/runs", &hasty).await.0, 200);
    assert_eq!(served.get("/runs", &hasty).await.0, 200);
    let refused = served.send(Method::GET, "/runs", &hasty, None).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 30);
    assert_eq!(served.get("/runs", &other).await.0, 200);
    served.end().await;
}

// Each guess cost a read of the database, without any limit.
#[tokio::test]
async fn guesses_of_tokens_are_refused_beyond_their_rate_and_keep_nobody_out_who_works() {
    let place = Place::sqlite();
    let served = Served::with(&place, |api: Api| api.rate(Rate::per_minute(1).burst(5)).router()).await;
    let (works, fresh) = (served.token(Role::Read, "acme").await, served.token(Role::Read, "other").await);
    assert_eq!(served.get("/runs", &works).await.0, 200);
    let mut refused = Vec::new();
    for guess in 0..200 {
        let answer = served.send(Method::GET, "/runs", &format!("cft_{guess:016x}_00"), None).await;
        match answer.status().as_u16() {
            401 => {}
            429 => refused.push(answer),
            other => panic!("{other}"),
        }
    }
    assert!(refused.len() >= 190, "{}", refused.len());
    let wait = refused[0].headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap();
    assert!(wait > 30, "{wait}");
    assert_eq!(served.get("/runs", &works).await.0, 200);
    assert_eq!(served.get("/runs", &fresh).await.0, 429, "it may be one more guess");
    assert_eq!(served.get("/runs", "cft_none").await.0, 401, "nothing is read for what is no token");
    served.end().await;
}

#[tokio::test]
async fn valid_tokens_count_as_no_guesses_until_they_are_revoked() {
    let place = Place::sqlite();
    let served = Served::with(&place, |api: Api| api.rate(Rate::per_minute(1).burst(2)).router()).await;
    for name in 0..10 {
        let token = served.token_of(&format!("{name}"), Role::Read, "acme").await;
        assert_eq!(served.get("/runs", &token).await.0, 200, "{name}");
    }
    let token = served.token(Role::Read, "acme").await;
    assert_eq!(served.get("/runs", &token).await.0, 200);
    Api::new(&served.client).tokens().revoke(&token[4..20], "ann").await.unwrap();
    assert_eq!(served.get("/runs", &token).await.0, 401);
    assert_eq!(served.get("/runs", &token).await.0, 401);
    assert_eq!(served.get("/runs", &token).await.0, 429);
    served.end().await;
}
