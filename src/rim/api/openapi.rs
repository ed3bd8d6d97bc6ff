//! The API in the words of `OpenAPI`. The operations come from the table of the routes, what they mean from the table of the
//! guide, and the schemas from the types that the handlers read and write.

mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ArrayBuilder, ComponentsBuilder, ContentBuilder, InfoBuilder, ObjectBuilder, OpenApiBuilder, PathItem,
    PathsBuilder, Ref, RefOr, Required, ResponseBuilder, Schema, Type, schema::SchemaType,
};
use utoipa::{IntoParams, ToSchema};

use super::page::{Prefix, Times, Window};
use super::routes::{ROUTES, Reach, Route};
#[cfg(feature = "schedule")]
use super::schedules;
use super::{commands, figures, inspect, kept, ledger, outbox, records, verdicts, workflows, write};
use crate::rim::record_list::{ListedRecord, RecordConditions};
use crate::rim::run_filter::RunConditions;
use crate::rim::set_aside::SetAside;

/// The guide, whose table says what each route means.
const GUIDE: &str = include_str!("../../../docs/api.md");

/// The document as JSON.
pub(super) static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    #[allow(clippy::expect_used, reason = "strings and maps of strings have a JSON form")]
    document().to_json().expect("it has a JSON form")
});

/// The schemas by their names.
type Schemas = BTreeMap<String, RefOr<Schema>>;

/// What a route takes and answers, beside the parts of its path.
#[derive(Default)]
struct Told {
    query: Vec<Parameter>,
    /// The schema of the body, and whether the route takes an `Idempotency-Key`.
    body: Option<(RefOr<Schema>, bool)>,
    answer: Answer,
}

enum Answer {
    Json(&'static str, Box<RefOr<Schema>>),
    Events,
}

impl Default for Answer {
    fn default() -> Self {
        Self::Json("200", Box::new(view("An object.")))
    }
}

fn document() -> utoipa::openapi::OpenApi {
    let (mut schemas, mut paths) = (Schemas::new(), PathsBuilder::new());
    put::<Problem>(&mut schemas);
    for route in ROUTES {
        for path in route.paths() {
            let method = if route.method == "POST" { HttpMethod::Post } else { HttpMethod::Get };
            let operation = operation(route, &path, &mut schemas);
            paths = paths.path(path, PathItem::new(method, operation));
        }
    }
    values::limit(&mut schemas);
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of the ledger."));
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("token", SecurityScheme::Http(bearer.build()));
    let info = InfoBuilder::new().title("counterfoil").version(env!("CARGO_PKG_VERSION"));
    OpenApiBuilder::new()
        .info(info.description(Some("The runs of a ledger, for operators and programs.")).build())
        .paths(paths)
        .components(Some(components.build()))
        .security(Some([SecurityRequirement::new("token", [""; 0])]))
        .build()
}

fn operation(route: &Route, path: &str, schemas: &mut Schemas) -> Operation {
    let Told { query, body, answer } = told(route, schemas);
    let reach = match route.reach {
        Reach::Tenant => "The route reaches the rows of one tenant.",
        Reach::Ledger => "The route is for callers for all tenants.",
    };
    let of_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id(route, path)))
        .summary(Some(meaning(route)))
        .description(Some(format!("The caller needs the role `{}`. {reach}", route.role)))
        .parameters(Some(of_path.map(|name| text(name, ParameterIn::Path))))
        .parameters(Some(query.into_iter().map(|parameter| values::limited(route.path, parameter))))
        .parameters(Some(values::headers(route.method, route.path)));
    let (status, media, schema) = match answer {
        Answer::Json(status, schema) => (status, "application/json", *schema),
        Answer::Events => {
            let over = ResponseBuilder::new().description("Nothing of the run can change any more.");
            operation = operation.response("204", over.build());
            ("200", "text/event-stream", ObjectBuilder::new().schema_type(Type::String).into())
        }
    };
    let answer = ContentBuilder::new().schema(Some(schema)).build();
    let mut answer = ResponseBuilder::new().description("The answer.").content(media, answer);
    if let Some((body, has_key)) = body {
        let content = ContentBuilder::new().schema(Some(body)).build();
        let body =
            RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
        if has_key {
            operation = operation.parameter(values::idempotency_key());
            let replayed = "`true` on the answer to a command or signal that was given before.";
            answer = answer.header("Idempotent-Replayed", values::told(replayed));
        }
    }
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let problem = ResponseBuilder::new()
        .description("The request was refused, or failed.")
        .content("application/problem+json", problem)
        .header("Retry-After", values::told("With 429: the seconds after which the caller may try again."))
        .header("WWW-Authenticate", values::told("With 401: `Bearer`."));
    operation.response(status, answer.build()).response("default", problem.build()).build()
}

/// The parameters, the body and the answer of a route.
fn told(route: &Route, schemas: &mut Schemas) -> Told {
    if let Some(list) = list(route, schemas) {
        return list;
    }
    let shown = |what| Told { answer: Answer::Json("200", Box::new(view(what))), ..Told::default() };
    let mut write = |body: fn(&mut Schemas) -> RefOr<Schema>, status, what| Told {
        body: Some((body(schemas), true)),
        answer: Answer::Json(status, Box::new(view(what))),
        ..Told::default()
    };
    match (route.method, route.path) {
        ("GET", "/runs/{run}") => shown("The run."),
        ("GET", "/runs/{run}/events" | "/events") => Told { answer: Answer::Events, ..Told::default() },
        ("GET", "/questions/{question}") => shown("The question."),
        ("GET", "/approvals/{approval}") => shown("The approval."),
        ("GET", "/records/{key}") => shown("The record."),
        ("GET", "/records/{key}/evidence") => shown("The evidence."),
        ("GET", "/artifacts/{kind}/{id}") => Told {
            query: query_of::<kept::OfVersion>(),
            answer: Answer::Json("200", Box::new(put::<kept::ShownArtifact>(schemas))),
            ..Told::default()
        },
        ("GET", _) => shown("An object."),
        ("POST", "/runs") => write(put::<commands::Start>, "201", "The run."),
        ("POST", "/runs/{run}/signals") => {
            write(put::<commands::Signal>, "200", "`sent` is `new` or `before`.")
        }
        ("POST", "/runs/{run}/fork") => write(put::<write::Bare>, "201", "The new run."),
        ("POST", "/erase") => {
            write(put::<commands::Erasure>, "200", "The runs and calls that were erased, and what was kept.")
        }
        ("POST", "/questions/{question}/answer") => write(put::<verdicts::Answer>, "200", "The question."),
        ("POST", "/approvals/{approval}/decision") => write(put::<verdicts::Decision>, "200", "The votes."),
        ("POST", "/outbox/{question}/release" | "/outbox/{question}/skip") => {
            write(put::<write::Bare>, "200", "The question about the event.")
        }
        ("POST", path) if path.starts_with("/guard/") => Told {
            body: Some((view("See the guide of the guard service."), false)),
            answer: Answer::Json("200", Box::new(view("The next step."))),
            ..Told::default()
        },
        _ => write(put::<write::Bare>, "200", "What was done."),
    }
}

/// The parameters and the answer of a route that answers with a page. `None` for another route.
fn list(route: &Route, schemas: &mut Schemas) -> Option<Told> {
    let (query, items) = match (route.method, route.path) {
        ("GET", "/runs") => (query_of::<RunConditions>(), view("A run.")),
        ("GET", "/runs/{run}/history") => {
            (Vec::new(), view("A turn, or a part of one, with its checkpoints and calls."))
        }
        ("GET", "/questions") => {
            let query = query_of::<inspect::Which>().into_iter().chain(query_of::<Times>());
            (query.collect(), put::<inspect::Listed>(schemas))
        }
        ("GET", "/approvals") => (query_of::<inspect::WhichReviews>(), view("An approval.")),
        ("GET", "/records") => {
            let query = query_of::<records::Beginning>().into_iter().chain(query_of::<RecordConditions>());
            (query.collect(), put::<ListedRecord>(schemas))
        }
        ("GET", "/artifacts") => (query_of::<kept::OfKind>(), view("An artifact without its content.")),
        #[cfg(feature = "memory")]
        ("GET", "/memories") => (query_of::<kept::About>(), put::<kept::ListedMemory>(schemas)),
        ("GET", "/outbox") => {
            let query = query_of::<outbox::WhichEvents>().into_iter().chain(query_of::<Times>());
            (query.collect(), put::<SetAside>(schemas))
        }
        #[cfg(feature = "schedule")]
        ("GET", "/schedules") => {
            (query_of::<schedules::WhichSchedules>(), put::<schedules::ListedSchedule>(schemas))
        }
        ("GET", "/figures") => (Vec::new(), put::<figures::DayFigures>(schemas)),
        ("GET", "/workflows") => (query_of::<Prefix>(), put::<workflows::ListedWorkflow>(schemas)),
        ("GET", "/tenants") => (query_of::<Prefix>(), put::<ledger::ListedTenant>(schemas)),
        ("GET", "/stuck") => {
            put::<inspect::Listed>(schemas);
            (query_of::<ledger::WhichStuck>(), put::<ledger::Stuck>(schemas))
        }
        ("GET", "/throttles") => (Vec::new(), put::<ledger::ListedThrottle>(schemas)),
        ("GET", "/queues") => (Vec::new(), put::<ledger::ListedQueue>(schemas)),
        ("GET", "/workers") => (Vec::new(), put::<ledger::ListedWorker>(schemas)),
        ("GET", "/tokens") => (query_of::<ledger::WhichTokens>(), view("A token without its secret.")),
        _ => return None,
    };
    Some(Told {
        query: query_of::<Window>().into_iter().chain(query).collect(),
        answer: Answer::Json("200", Box::new(page(items))),
        ..Told::default()
    })
}

/// An id of the operation that no other one has.
fn id(route: &Route, path: &str) -> String {
    let mut id = route.method.to_lowercase();
    for part in path.split(['/', '{', '}']).filter(|part| !part.is_empty()) {
        id.push('_');
        id.push_str(part);
    }
    id
}

/// What the guide's table says about a route, without the marks of its links.
fn meaning(route: &Route) -> String {
    let beginning = format!("| `{}` | `{}` |", route.method, route.path);
    let row = GUIDE.lines().find_map(|line| line.strip_prefix(&beginning)).unwrap_or_default();
    let cell = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
    let mut parts = cell.split("](");
    let mut text = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        text.push_str(&part.split_once(')').map_or(part, |(_, rest)| rest).replace('[', ""));
    }
    text
}

/// Puts a type's schema among the others, and refers to it.
fn put<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let name = T::name().into_owned();
    schemas.entry(name.clone()).or_insert_with(T::schema);
    let mut further = Vec::new();
    T::schemas(&mut further);
    schemas.extend(further);
    Ref::from_schema_name(name).into()
}

fn query_of<T: IntoParams>() -> Vec<Parameter> {
    T::into_params(|| Some(ParameterIn::Query))
}

fn text(name: &str, place: ParameterIn) -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String).build();
    ParameterBuilder::new().name(name).parameter_in(place).required(Required::True).schema(Some(text)).build()
}

/// An object that is described in words.
fn view(description: &str) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Object).description(Some(description)).into()
}

/// A page of these items.
fn page(items: RefOr<Schema>) -> RefOr<Schema> {
    let cursor = SchemaType::from_iter([Type::String, Type::Null]);
    let next = ObjectBuilder::new()
        .schema_type(cursor)
        .description(Some("The cursor of the next page, to be sent as `after`; null on the last page."));
    let items = ArrayBuilder::new().items(items).build();
    ObjectBuilder::new()
        .property("items", items)
        .property("next", next)
        .required("items")
        .required("next")
        .into()
}

/// A request that was refused or failed, as RFC 9457 describes it.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes what `Details` writes")]
struct Problem {
    /// `urn:counterfoil:problem:` and the code of the error.
    #[schema(example = "urn:counterfoil:problem:not_found")]
    r#type: String,
    /// The kind of the problem in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened, what is durable now, and what to do next.
    detail: String,
}
