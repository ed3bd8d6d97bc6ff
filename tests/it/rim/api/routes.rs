//! Every route with every role and every tenant, against the table in `docs/api.md`.

use std::collections::BTreeSet;

use counterfoil::api::{Api, Reach, Role};
use counterfoil::store::QuestionKind;
use reqwest::Method;
use serde_json::{Value, json};

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

// With a mistyped filter a list would be that of everything.
#[tokio::test]
async fn a_query_parameter_that_a_route_does_not_know_is_refused() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let token = served.token(Role::Admin, "*").await;
    for route in Api::routes().iter().filter(|route| route.method == "GET") {
        let path = route.path.replace(['{', '}'], "");
        let path = if route.reach == Reach::Tenant { format!("/tenants/acme{path}") } else { path };
        let Some(known) = route.query else {
            assert!(path.ends_with("/events"), "{path}");
            continue;
        };
        let (status, problem) = served.get(&format!("{path}?nonsense=1"), &token).await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (400, &json!("urn:counterfoil:problem:malformed")),
            "{path}"
        );
        assert!(problem["detail"].as_str().unwrap().contains("\"nonsense\""), "{problem}");
        for name in known {
            let (_, answer) = served.get(&format!("{path}?{name}=1"), &token).await;
            assert!(!answer.to_string().contains("is no query parameter"), "{path}?{name}: {answer}");
        }
    }
    served.end().await;
}

/// All references within a part of the document.
fn references(part: &Value, found: &mut BTreeSet<String>) {
    match part {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_of_the_api_has_exactly_the_routes_of_the_router() {
    let served = Served::on(&Place::sqlite()).await;
    let response = served.send(Method::GET, "/openapi.json", "", None).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let described: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(described["info"]["version"], env!("CARGO_PKG_VERSION"));
    let (mut found, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let what = format!("{method} {path}: {operation}");
            found.insert((method.to_uppercase(), path.clone()));
            assert!(ids.insert(operation["operationId"].to_string()), "{what}");
            let summary = operation["summary"].as_str().unwrap();
            assert!(summary.len() > 5 && !summary.contains("]("), "{what}");
            let problem = &operation["responses"]["default"]["content"]["application/problem+json"];
            assert_eq!(problem["schema"]["$ref"], "#/components/schemas/Problem", "{what}");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let of = |place| {
                let of_place = parameters.iter().filter(|parameter| parameter["in"] == place);
                of_place.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            let parts = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            let is_meant = |route: &&counterfoil::api::Route| {
                let served = path.strip_prefix("/tenants/{tenant}").filter(|rest| !rest.is_empty());
                route.method.to_lowercase() == *method && route.path == served.unwrap_or(path)
            };
            let known = Api::routes().iter().find(is_meant).unwrap().query.unwrap_or_default();
            assert!(of("query").iter().all(|name| known.contains(&name.as_str())), "{what}");
            let answer = &operation["responses"]["200"]["content"]["application/json"]["schema"];
            if method == "get" && answer["properties"]["items"].is_object() {
                let given = of("query");
                assert!(
                    ["after", "limit"].iter().all(|name| given.iter().any(|given| given == name)),
                    "{what}"
                );
                assert!(["after", "limit"].iter().all(|name| known.contains(name)), "{what}");
            }
            assert_eq!(of("path"), parts.map(str::to_owned).collect::<Vec<_>>(), "{what}");
            let is_write = method == "post" && !path.contains("/guard/");
            assert_eq!(of("header").iter().any(|name| name == "Idempotency-Key"), is_write, "{what}");
            let is_stream = path.ends_with("/events");
            assert_eq!(of("header") == ["Last-Event-ID"], is_stream, "{what}");
            assert_eq!(operation["responses"]["204"].is_object(), is_stream, "{what}");
            let limit = parameters.iter().find(|parameter| parameter["name"] == "limit");
            assert!(limit.is_none_or(|limit| limit["schema"]["maximum"] == 200), "{what}");
            assert_eq!(
                operation["requestBody"]["content"]["application/json"].is_object(),
                method == "post",
                "{what}"
            );
        }
    }
    let routes = Api::routes().iter().flat_map(|route| {
        let by_name = (route.reach == Reach::Tenant).then(|| format!("/tenants/{{tenant}}{}", route.path));
        let paths = std::iter::once(route.path.to_owned()).chain(by_name);
        paths.map(|path| (route.method.to_owned(), path))
    });
    assert_eq!(found, routes.collect());
    let mut named = BTreeSet::new();
    references(&described, &mut named);
    for name in &named {
        let place = name.strip_prefix('#').unwrap();
        assert!(described.pointer(place).is_some(), "{name} leads nowhere");
    }
    let start = &described["components"]["schemas"]["Start"];
    assert_eq!(start["required"], json!(["reason", "workflow"]), "{start}");
    let conditions = described["paths"]["/runs"]["get"]["parameters"].as_array().unwrap();
    let given: BTreeSet<_> = conditions.iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
    assert!(
        given.is_superset(&BTreeSet::from(["after", "limit", "state", "workflow", "key", "since"])),
        "{given:?}"
    );
    assert_eq!(described["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    served.end().await;
}

#[tokio::test]
async fn the_description_of_the_api_says_what_values_may_be() {
    let served = Served::on(&Place::sqlite()).await;
    let (_, described) = served.get("/openapi.json", "").await;
    // Each answer that a question takes is one of those that are described.
    let answer = &described["components"]["schemas"]["Answer"]["properties"]["answer"]["oneOf"];
    let described_as = |name: &str| {
        let is_it = |form: &Value| {
            form["enum"].as_array().is_some_and(|names| names.contains(&json!(name)))
                || !form["properties"][name].is_null()
        };
        answer.as_array().unwrap().iter().any(is_it)
    };
    for kind in QuestionKind::ALL {
        for possible in kind.answers() {
            assert!(described_as(possible.name), "{possible}");
        }
    }
    let kinds = &described["paths"]["/questions"]["get"]["parameters"];
    let kinds = kinds.as_array().unwrap().iter().find(|parameter| parameter["name"] == "kind").unwrap();
    assert!(kinds["schema"]["enum"].as_array().unwrap().contains(&json!("unknown_tool")), "{kinds}");
    served.end().await;
}
