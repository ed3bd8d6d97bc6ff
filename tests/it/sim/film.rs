//! The film that a studio renders for hours: a callback or a poll finishes the call, wherever a process dies.

#[path = "../../../workflows/render_film.rs"]
#[allow(dead_code, reason = "its program is not what is simulated")]
mod render_film;

use crate::sim::quick;

// SIM-2, R-EXE-13
#[test]
fn a_film_is_rendered_once_wherever_its_premiere_is_crashed() {
    let report = quick(render_film::simulated::simulation()).explore();
    report.assert_ok();
    assert!(report.schedules() > 100, "only {} schedules", report.schedules());
}
