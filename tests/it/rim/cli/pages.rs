//! The evidence of a call as a page in a file, on both stores.

use std::fs;

use counterfoil::Key;
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};

use super::Line;
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

/// A tool whose name and key would be elements of a page.
struct Hostile;

impl Tool for Hostile {
    const NAME: &'static str = "<script>alert(1)</script>";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = u32;

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of("<form>").target(case))
    }

    async fn call(&self, _call: &Call, _case: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(17).external_ref("<iframe>"))
    }
}

#[test]
fn the_evidence_of_a_call_is_a_page_that_stands_alone() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, case: String| ctx.call::<Hostile>(case).await);
        let engine = place.engine(&world).tool(Hostile).workflow("act", 1, code);
        let process = Process::start(&world, engine);
        let line = Line::at(&place, &world);
        let run = line.json(&["start", "act", "\"c-17\""]).remove(0)["id"].as_str().unwrap().to_owned();
        process.on(process.state(run.parse().unwrap(), "succeeded"));
        let key = line.json(&["records"]).remove(0)["key"].as_str().unwrap().to_owned();
        assert!(key.contains("<form>"), "{key}");

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("evidence.html");
        let path = file.to_str().unwrap();
        let known = |text: String| text.split_once("as of").unwrap().0.to_owned(); // before the instant of the reading
        let text = known(line.text(&["evidence", &key]));
        assert_eq!(known(line.text(&["evidence", &key, "--html", path])), text, "it is printed, too");
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("prefers-color-scheme: dark"), "{page}");
        for banned in ["<script", "<form", "<iframe", "<a ", "<link", "<button", "<nav", "url(", "@import"] {
            assert!(!page.contains(banned), "{banned} in {page}");
        }
        for shown in [
            "&lt;script&gt;alert(1)&lt;/script&gt; (internal mutation)",
            "<code>&lt;iframe&gt;</code>",
            &key.replace('<', "&lt;").replace('>', "&gt;"),
            &format!(", by <code>{run}</code>"),
            "committed</span>",
            "Tenant acme, as of",
            "<td class=\"number\">1</td>",
        ] {
            assert!(page.contains(shown), "{shown} is missing in {page}");
        }

        let missing = dir.path().join("missing/evidence.html");
        let refused = line.run(&["evidence", &key, "--html", missing.to_str().unwrap()]);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains("missing/evidence.html cannot be written"), "{told}");
        let other = dir.path().join("other.html");
        let unknown = line.run(&["evidence", "nothing", "--html", other.to_str().unwrap()]);
        assert!(unknown.status.code() == Some(1) && !other.exists(), "{unknown:?}");
        process.shut_down();
    }
}
