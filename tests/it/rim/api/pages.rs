//! Lists whose sources return fewer items than a page holds, and still have more: a page says whether there is a next one.

use std::time::Duration;

use counterfoil::ApprovalSubject;
use counterfoil::api::Role;
use counterfoil::ledger::ReviewPolicy;
use counterfoil::{Ctx, Failure};
use serde_json::{Value, json};

use super::operating::escaped;
use super::{Served, count, operating, wait};
use crate::on_both_stores;

/// The items of all pages of a list, each page with at most so many.
async fn walked(served: &Served, token: &str, list: &str, limit: usize) -> Vec<Value> {
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = served.get(&format!("{list}?limit={limit}{after}"), token).await;
        assert_eq!(status.as_u16(), 200, "{page}");
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{} items", items.len());
        seen.extend(items.iter().cloned());
        let Some(next) = page["next"].as_str() else { return seen };
        after = format!("&after={}", escaped(next));
    }
}

/// A run without loops, with so many steps of ten kilobytes.
async fn fills(ctx: Ctx, steps: u32) -> Result<u32, Failure> {
    for step in 0..steps {
        ctx.step("fill", &step, |step| format!("{step:010000}")).await?;
    }
    Ok(steps)
}

/// A run without loops, with so many small steps.
async fn walks(ctx: Ctx, steps: u32) -> Result<u32, Failure> {
    for step in 0..steps {
        ctx.step("walk", &step, u32::to_string).await?;
    }
    Ok(steps)
}

on_both_stores! {
    async fn a_turn_that_does_not_fit_on_a_page_is_continued_on_the_next_one(place) {
        const STEPS: u32 = 400;
        let served = Served::beside(&place, place.engine().workflow("fills", 1, fills)).await;
        let token = served.token(Role::Read, "acme").await;
        let run = served.engine.tenant("acme").unwrap().run(fills, STEPS).key("f").start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), STEPS);
        let path = format!("/runs/{}/history?limit=50", run.id());
        let (mut pages, mut seen, mut after) = (0, Vec::new(), String::new());
        loop {
            let (status, page) = served.get(&format!("{path}{after}"), &token).await;
            assert_eq!(status.as_u16(), 200, "{page}");
            assert!(page.to_string().len() < 1_200_000, "{}", page.to_string().len());
            let turns = page["items"].as_array().unwrap();
            assert!(turns.iter().all(|turn| turn["turn"] == 0), "there are no loops");
            let steps = turns.iter().flat_map(|turn| turn["steps"].as_array().unwrap());
            seen.extend(steps.map(|step| step["value"].to_string()));
            pages += 1;
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={}", escaped(next));
        }
        assert!(pages >= 4, "{pages}");
        assert_eq!(seen.len(), STEPS as usize);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), STEPS as usize, "each step is on one page");
        served.end().await;
    }

    async fn a_turn_with_many_checkpoints_is_continued_on_the_next_page(place) {
        const STEPS: u32 = 1_100;
        let served = Served::beside(&place, place.engine().workflow("walks", 1, walks)).await;
        let token = served.token(Role::Read, "acme").await;
        let run = served.engine.tenant("acme").unwrap().run(walks, STEPS).key("w").start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), STEPS);
        let turns = walked(&served, &token, &format!("/runs/{}/history", run.id()), 1).await;
        let pages: Vec<_> = turns.iter().map(|turn| turn["steps"].as_array().unwrap().len()).collect();
        assert_eq!(pages, [1000, 100]);
        let steps = turns.iter().flat_map(|turn| turn["steps"].as_array().unwrap());
        let mut seen: Vec<_> = steps.map(|step| step["value"].to_string()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), STEPS as usize, "each step is on one page");
        served.end().await;
    }

    async fn a_history_ends_with_the_last_turn_whatever_the_limit(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let run = served.engine.tenant("acme").unwrap().run(count, 130).key("c").start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 130);
        let path = format!("/runs/{}/history", run.id());
        for limit in [1, 120, 200] {
            let turns = walked(&served, &token, &path, limit).await;
            let turns: Vec<_> = turns.iter().map(|turn| turn["turn"].as_u64().unwrap()).filter(|turn| *turn > 0).collect();
            assert_eq!(turns, (1..=130).collect::<Vec<_>>(), "limit {limit}");
        }
        let (_, first) = served.get(&format!("{path}?limit=120"), &token).await;
        assert_eq!(first["items"].as_array().unwrap().len(), 120);
        let (_, last) = served.get(&format!("{path}?limit=30&after=100"), &token).await;
        assert_eq!((last["items"].as_array().unwrap().len(), &last["next"]), (30, &json!(null)), "nothing is behind it");
        served.end().await;
    }

    async fn lists_that_are_read_as_a_whole_are_answered_in_pages(place) {
        let served = operating::served(&place).await;
        let token = served.token(Role::Admin, "*").await;
        let acme = served.engine.tenant("acme").unwrap();
        for name in ["a", "b", "c"] {
            acme.schedule(name).cron("0 3 * * *").run(wait, json!(null)).await.unwrap();
        }
        acme.schedule("b").delete().await.unwrap();
        for (list, name, expected) in [
            ("/throttles", "name", vec![json!("fax"), json!("post")]),
            ("/tenants/acme/schedules", "name", vec![json!("a"), json!("c")]),
        ] {
            for limit in [1, 2, 200] {
                let seen = walked(&served, &token, list, limit).await;
                let seen: Vec<_> = seen.into_iter().map(|item| item[name].clone()).collect();
                assert_eq!(seen, expected, "{list} with limit {limit}");
            }
        }
        for (list, name) in [("/workers", "number"), ("/queues", "name"), ("/tenants/acme/figures", "day")] {
            let named = |page: Vec<Value>| page.into_iter().map(|item| item[name].clone()).collect::<Vec<_>>();
            let all = named(walked(&served, &token, list, 200).await);
            assert_eq!(named(walked(&served, &token, list, 1).await), all, "{list}");
        }
        served.end().await;
    }

    async fn approvals_whose_time_is_over_do_not_hide_those_behind_them(place) {
        let served = Served::on(&place).await;
        let token = served.token(Role::Read, "acme").await;
        let approvals = served.client.tenant("acme").unwrap().approvals();
        let refund = ApprovalSubject::of("refund", &json!({ "cents": 4200 }));
        let people = ReviewPolicy::by(["ann"]);
        let mut open = Vec::new();
        for id in ["a", "y", "z"] {
            open.push(approvals.ask(id, refund.clone(), people.clone()).await.unwrap().id);
        }
        // More than one statement reads.
        for number in 0..260 {
            let id = format!("b{number:03}");
            approvals.ask(id, refund.clone(), people.clone().expires_in(Duration::ZERO)).await.unwrap();
        }
        for limit in [1, 2, 3, 200] {
            let seen = walked(&served, &token, "/approvals", limit).await;
            let seen: Vec<_> = seen.iter().map(|open| open["id"].as_str().unwrap()).collect();
            assert_eq!(seen, open, "limit {limit}");
        }
        let (_, all) = served.get("/approvals?limit=3", &token).await;
        assert_eq!((all["items"].as_array().unwrap().len(), &all["next"]), (3, &json!(null)));
        assert_eq!(approvals.reviews(None).await.unwrap().len(), 3);
        served.end().await;
    }
}
