//! The open questions of a tenant that has many.

use counterfoil::QuestionId;

use super::Line;
use super::inspect::execute;
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

/// The ids of the questions that a list prints, as text and as JSON.
fn printed(line: &Line) -> Vec<String> {
    let (text, lines) = (line.text(&["questions"]), line.json(&["questions"]));
    let ids: Vec<_> = lines.iter().map(|asked| asked["id"].as_str().unwrap().to_owned()).collect();
    let words = text.split_whitespace().filter(|word| word.starts_with("question-"));
    assert_eq!(words.collect::<Vec<_>>(), ids);
    // What is read at once is printed at once: a table of two hundred questions at most.
    assert_eq!(text.matches("QUESTION").count(), ids.len().div_ceil(200).max(1), "{text}");
    ids
}

#[test]
fn open_questions_are_read_and_printed_page_by_page_to_the_last_one() {
    let (world, place) = (World::new(), Place::File);
    let process = Process::start(&world, place.engine(&world));
    let line = Line::at(&place, &world);
    assert_eq!(printed(&line), [""; 0]);
    // Messages that could not be processed: a full page, and then more than two.
    for (insert, last) in [
        (
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) \
             INSERT INTO escalation (tenant, id, kind, question, opened_at) \
             SELECT 'acme', i, 22, 'what now?', 1700000000000000 FROM n",
            200,
        ),
        (
            "WITH RECURSIVE n (i) AS (SELECT 201 UNION ALL SELECT i + 1 FROM n WHERE i < 450) \
             INSERT INTO escalation (tenant, id, kind, question, opened_at) \
             SELECT 'acme', i, 22, 'what now?', 1700000000000000 FROM n",
            450,
        ),
    ] {
        process.on(execute(&place, &world, insert));
        let expected: Vec<_> = (1..=last).map(|id| QuestionId(id).to_string()).collect();
        assert_eq!(printed(&line), expected);
    }
    process.shut_down();
}
