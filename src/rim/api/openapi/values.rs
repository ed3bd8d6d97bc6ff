//! What values may be: the names of states, kinds and roles, the answers to questions, the size of a page, and headers.

use serde_json::json;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{Header, HeaderBuilder, ObjectBuilder, OneOfBuilder, RefOr, Required, Schema, Type};

use super::Schemas;
use crate::rim::api::caller::Role;
use crate::rim::api::page;
use crate::rim::http::LONGEST_KEY;
use crate::rim::record_list::STATES as RECORD_STATES;
use crate::store::{QuestionKind, Resolution, RunStateName};

/// The parameter of a route, with the values that it may have.
pub(super) fn limited(path: &str, mut parameter: Parameter) -> Parameter {
    let schema: RefOr<Schema> = match (path, parameter.name.as_str()) {
        (_, "limit") => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1_u32))
            .maximum(Some(page::MOST))
            .default(Some(json!(page::DEFAULT)))
            .into(),
        ("/runs", "state") => one_of(RunStateName::ALL.map(RunStateName::name)),
        ("/records", "state") => one_of(RECORD_STATES),
        ("/schedules", "state") => one_of(["active", "paused"]),
        ("/tokens", "role") => one_of(Role::ALL.map(Role::name)),
        ("/questions" | "/stuck", "kind") => one_of(kinds()),
        _ => return parameter,
    };
    parameter.schema = Some(schema);
    parameter
}

/// Says what the values in these schemas may be.
pub(super) fn limit(schemas: &mut Schemas) {
    for (of, property, schema) in [("Listed", "kind", one_of(kinds())), ("Answer", "answer", answer())] {
        if let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(of) {
            object.properties.insert(property.to_owned(), schema);
        }
    }
}

/// The kinds of questions, as JSON has them.
fn kinds() -> Vec<String> {
    // A call that waits for its provider is listed nowhere.
    let listed = QuestionKind::ALL.into_iter().filter(|kind| *kind != QuestionKind::Pending);
    listed.filter_map(|kind| json!(kind).as_str().map(str::to_owned)).collect()
}

/// The answers of people. The list of a question says which of them it takes.
fn answer() -> RefOr<Schema> {
    let words = [
        Resolution::DidNotHappen,
        Resolution::LookNow,
        Resolution::Resume,
        Resolution::Abandon,
        Resolution::Keep,
        Resolution::Undo,
        Resolution::Again,
        Resolution::Skip,
        Resolution::Lift,
    ];
    let with = |name: &str, value: ObjectBuilder| {
        ObjectBuilder::new().schema_type(Type::Object).property(name, value).required(name)
    };
    let any = || ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    let reason = with("reason", ObjectBuilder::new().schema_type(Type::String));
    OneOfBuilder::new()
        .item(one_of(words.map(|answer| answer.name())))
        .item(with("happened", any()))
        .item(with("undone", any()))
        .item(with("deliver", any()))
        .item(with("send_without_looking", reason))
        .into()
}

fn one_of<N: Into<serde_json::Value>>(names: impl IntoIterator<Item = N>) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
}

/// The key of a write.
pub(super) fn idempotency_key() -> Parameter {
    let key = ObjectBuilder::new().schema_type(Type::String).max_length(Some(LONGEST_KEY)).build();
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some("The same in each retry of the write."))
        .schema(Some(key))
        .build()
}

/// The headers that a request to a route may have, beside the key of a write.
pub(super) fn headers(method: &str, path: &str) -> Vec<Parameter> {
    let header = |name: &str, meaning: &str| {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(meaning))
            .schema(Some(text))
            .build()
    };
    match (method, path) {
        ("GET", "/runs/{run}/events" | "/events") => {
            vec![header("Last-Event-ID", "The cursor behind which the stream begins.")]
        }
        ("POST", "/runs") => {
            vec![header("traceparent", "The trace of the request, of which the run becomes a span.")]
        }
        _ => Vec::new(),
    }
}

/// A header of an answer.
pub(super) fn told(meaning: &str) -> Header {
    let text = ObjectBuilder::new().schema_type(Type::String).build();
    HeaderBuilder::new().schema(Some(text)).description(Some(meaning)).build()
}
