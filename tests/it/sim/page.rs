//! The findings of a simulation as a page in one file.

use std::fs;
use std::process::{Command, ExitCode, Output};

use counterfoil::sim::{Offer, Options, Service, Simulation, Suite};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure};
use serde_json::Value;

use crate::sim::{Looks, Naive, simulation};

/// Blind retry: it makes duplicates, and nothing says so.
fn naive() -> Simulation {
    simulation(Offer::Blind, Naive).single_crashes()
}

/// A page loads nothing, has no script, and is dark and light.
fn stands_alone(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    for banned in ["<script", "<link", "<img", "<iframe", "<form", "src=", "href=\"h", "url(", "@import"] {
        assert!(!page.contains(banned), "{banned} in {page}");
    }
    assert!(page.contains("<style>") && page.contains("prefers-color-scheme: dark"), "{page}");
}

/// The event of a word, as it stands in the row of a timeline.
fn event(word: &str) -> String {
    format!("</span> {word}</span>")
}

fn place(page: &str, what: &str) -> usize {
    page.find(what).unwrap_or_else(|| panic!("{what} is missing in {page}"))
}

// A failing schedule is a timeline: where it crashed, and what happened twice.
#[test]
fn a_failing_schedule_is_shown_with_its_violation_and_its_crash() {
    let report = naive().explore();
    let failing = &report.failures()[0];
    let schedule = failing.schedule.to_string();
    assert!(schedule.starts_with("crash@"), "another incident is found first by now: {schedule}");
    let page = report.html();
    stands_alone(&page);
    assert!(page.contains("rules are broken") && !page.contains("no rule is broken"), "{page}");
    let shown = place(&page, &format!("Failing schedule <code>{schedule}</code>"));
    let page = &page[shown..];
    let violation = failing.violations[0].to_string();
    assert!(violation.contains("happened 2 times"), "{violation}");
    let order = [
        place(page, &violation),
        place(page, &format!(".replay(&amp;&quot;{schedule}&quot;.parse()?)")),
        place(page, &event("effect")),
        place(page, &event("crash")),
        place(page, &event("duplicate")),
    ];
    assert!(order.is_sorted(), "{order:?} in {page}");
    assert!(
        page.contains("the power fails at ") && page.contains("desk: case/1 happens as desk-2"),
        "{page}"
    );
}

#[test]
fn the_numbers_of_the_report_are_on_its_page() {
    let report = simulation(Offer::Lookup, Looks).single_crashes().explore();
    let page = report.html();
    stands_alone(&page);
    assert!(page.contains("no rule is broken") && !page.contains("Failing schedule"), "{page}");
    assert!(page.contains(&format!("{} were tried, all that were planned.", report.schedules())), "{page}");
    let json = report.json();
    let tool = &json["tools"][0];
    let number = |name: &str| format!("<td class=\"number\">{}</td>", tool[name]);
    let names =
        ["committed", "by_lookup", "on_declaration", "failed", "asked", "effects", "duplicates_marked"];
    let numbers: String = names.into_iter().map(number).collect();
    let row = format!("<td>Looks</td><td>lookup</td><td>internal mutation</td>{numbers}");
    assert!(page.contains(&row), "{row} is missing in {page}");

    let early = simulation(Offer::Lookup, Looks).explore_while(|report| report.schedules() < 3);
    let said = format!("Of at least {} planned schedules, 3 were tried.", early.planned());
    assert!(early.html().contains(&event("ended early")) && early.html().contains(&said), "{}", early.html());
}

#[test]
fn one_schedule_has_a_page_with_its_lookups() {
    let simulation = simulation(Offer::Lookup, Looks);
    let page = simulation.replay(&"answer-lost@1".parse().unwrap()).html();
    stands_alone(&page);
    for word in ["no rule is broken", "request with a fault", "effect", "lookup", "end"] {
        assert!(page.contains(&event(word)), "{word} is missing in {page}");
    }
    assert!(!page.contains(&event("duplicate")) && !page.contains(&event("crash")), "{page}");
}

/// A tool whose name would be an element of the page.
struct Hostile(Service);

impl Tool for Hostile {
    const NAME: &'static str = "<script>alert(1)</script>";
    type Effect = effect::InternalMutation;
    type Contract = contract::Blind;
    type Input = String;
    type Output = Value;

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

fn hostile() -> Simulation {
    async fn call(ctx: Ctx, case: String) -> Result<Value, Failure> {
        ctx.call::<Hostile>(case).await
    }
    Simulation::of(call, "<img src=x onerror=alert(2)>\u{202e}".to_owned())
        .engine(|engine, world| engine.tool(Hostile(world.service("<form>", Offer::Blind))))
        .check("<iframe>", |end| if end.succeeded() { Err("<link>".into()) } else { Ok(()) })
        .single_crashes()
}

#[test]
fn hostile_text_stays_text() {
    let results = Suite::new().with("<script>", hostile).explore(&Options::default()).unwrap();
    for page in [results.html(), results.explored()[0].report().html()] {
        // `stands_alone` looks for what begins an element; an attribute within text begins none.
        stands_alone(&page.replace("&lt;img src=x", ""));
        for text in [
            "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>",
            "&lt;form&gt;: &lt;img src=x onerror=alert(2)&gt;\\u{202e} happens as &lt;form&gt;-1",
            "&lt;iframe&gt;: &lt;link&gt;",
        ] {
            assert!(page.contains(text), "{text} is missing in {page}");
        }
        assert!(!page.contains('\u{202e}'), "a mark that turns the direction of writing is shown");
    }
    assert!(results.html().contains("<h2 id=\"simulation-1\">&lt;script&gt;</h2>"), "{}", results.html());
}

#[test]
fn a_suite_writes_its_page_beside_what_it_prints() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("findings.html");
    let suite =
        Suite::new().with("naive", naive).with("looks", || simulation(Offer::Lookup, Looks).single_crashes());
    let suite = suite.command("prove-it");
    let options = Options { html: Some(file.clone()), ..Options::default() };
    assert_eq!(suite.run(&options), ExitCode::FAILURE);
    let page = fs::read_to_string(&file).unwrap();
    stands_alone(&page);
    assert!(page.contains("<a href=\"#simulation-2\">looks</a>"), "{page}");
    assert!(page.contains("prove-it naive --seed 0 --replay &quot;crash@"), "{page}");
    assert!(page.contains(&event("duplicate")), "{page}");
}

fn counterfoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(arguments).output().unwrap()
}

// EDGE-7: `counterfoil simulate --html`.
#[test]
fn the_program_writes_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prove.html");
    let path = file.to_str().unwrap();
    let ran = counterfoil(&["simulate", "prove", "--random", "5", "--json", "--html", path]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let page = fs::read_to_string(&file).unwrap();
    stands_alone(&page);
    let schedules = &json["simulations"][0]["schedules"];
    assert!(page.contains(&format!("{schedules} were tried, all that were planned.")), "{page}");

    let ran = counterfoil(&["simulate", "prove", "--replay", "crash@1.7", "--html", path]);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let page = fs::read_to_string(&file).unwrap();
    stands_alone(&page);
    assert!(
        page.contains("<h1>Schedule <code>crash@1.7</code></h1>") && page.contains(&event("crash")),
        "{page}"
    );
}

// A path that cannot be written is told before the exploration, and nothing is tried.
#[test]
fn a_page_that_cannot_be_written_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing/page.html");
    let ran = counterfoil(&["simulate", "prove", "--html", missing.to_str().unwrap()]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{ran:?}");
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(
        told.contains("missing/page.html cannot be written") && told.ends_with("[configuration]\n"),
        "{told}"
    );
}
