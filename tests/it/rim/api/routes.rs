//! Every route with every role and every tenant, against the table in `docs/api.md`.

use std::collections::BTreeSet;

use counterfoil::api::{Api, Reach, Role};
use reqwest::Method;
use serde_json::json;

use super::Served;
use crate::place::Place;

/// The rows of the table: method, path, role, reach.
fn documented() -> BTreeSet<[String; 4]> {
    let page = include_str!("../../../../docs/api.md");
    let rows = page.lines().filter(|line| line.starts_with("| `GET` ") || line.starts_with("| `POST` "));
    let cells = |row: &str| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        std::array::from_fn(|_| cells.next().unwrap())
    };
    rows.map(cells).collect()
}

#[test]
fn the_table_of_the_guide_has_exactly_the_routes_of_the_router() {
    let row = |route: &counterfoil::api::Route| {
        [route.method, route.path, route.role.name(), route.reach.name()].map(str::to_owned)
    };
    assert_eq!(Api::routes().iter().map(row).collect::<BTreeSet<_>>(), documented());
}

#[tokio::test]
async fn each_route_is_open_to_the_roles_and_tenants_of_the_table_and_to_no_others() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut tried = 0;
    for tenant in ["acme", "*"] {
        for role in Role::ALL {
            let token = served.token(role, tenant).await;
            for [method, path, needed, reach] in documented() {
                let path = path.replace(['{', '}'], "");
                for of in ["", "acme", "other"] {
                    if reach == Reach::Ledger.name() && !of.is_empty() {
                        continue;
                    }
                    let path = if of.is_empty() { path.clone() } else { format!("/tenants/{of}{path}") };
                    let body = (method == "POST").then(|| ("k", json!({ "reason": "a walk", "none": 1 })));
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    let status = served.send(method, &path, &token, body.clone()).await.status().as_u16();
                    let knows_role = role.allows(needed.parse().unwrap());
                    let sees = if reach == Reach::Ledger.name() {
                        tenant == "*"
                    } else {
                        tenant == "*" || of != "other"
                    };
                    let what = format!("{path} as {role} of {tenant}: {status}");
                    assert_eq!(status == 403, !(knows_role && sees), "{what}");
                    assert_ne!(status, 401, "{what}");
                    assert!(status < 500, "{what}");
                    tried += 1;
                }
            }
        }
    }
    for [method, path, ..] in documented() {
        let path = path.replace(['{', '}'], "");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for token in ["", "cft_", "cft_0123456789abcdef_00", "\u{e4}cft", "cft_0123456789abcde\u{e4}_00"] {
            let response = served.send(method.clone(), &path, token, None).await;
            assert_eq!(response.status(), 401, "{path} with {token:?}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
        }
    }
    assert!(tried > 400, "{tried}");
    served.end().await;
}
