//! The URL of an HTTP tool: a template whose values are escaped, so that none adds a path segment or a query parameter.

use reqwest::Url;

use crate::tool::ToolError;
use crate::tool::declared::template::{Text, Values};
use crate::tool::http::percent;

/// An `http` or `https` URL with holes in its path and its query.
#[derive(Clone, Debug)]
pub(super) struct UrlTemplate(Text);

impl UrlTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let template = Text::parse(text)?;
        let url = Url::parse(&template.sample()).map_err(|error| format!("{text:?} is no URL: {error}"))?;
        let host_ends = template.begin().split_once("://").is_some_and(|(_, host)| host.contains(['/', '?']));
        if template.has_holes() && !host_ends {
            return Err(format!(
                "{text:?} takes its host from the input: a hole belongs into the path or the query"
            ));
        }
        if !matches!(url.scheme(), "http" | "https") || url.fragment().is_some() {
            return Err(format!("{text:?} is neither an http nor an https URL without fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL holds a credential: use a secret header".to_owned());
        }
        Ok(Self(template))
    }

    pub(super) fn has_token(&self) -> bool {
        self.0.has_token()
    }

    pub(super) fn has_holes(&self) -> bool {
        self.0.has_holes()
    }

    /// The origin, which no value changes.
    pub(super) fn sample(&self) -> String {
        self.0.sample()
    }

    /// The URL with percent-encoded values. A value that is no path segment by itself (empty, `.`, `..`) is refused: a
    /// URL would lose it, and name another resource.
    pub(super) fn fill(&self, values: Values<'_>) -> Result<Url, ToolError> {
        let filled = self.0.with(|hole| hole.text(values).map(|text| percent(&text)))?;
        let path = |url: &'_ str| url.split('?').next().unwrap_or_default().to_owned();
        let (sample, real) = (path(&self.0.sample()), path(&filled));
        let mut segments = sample.split('/').zip(real.split('/'));
        if segments.any(|(sample, real)| sample != real && matches!(real, "" | "." | "..")) {
            return Err(ToolError::refused("not sent: a value in the URL's path is empty, `.` or `..`"));
        }
        Url::parse(&filled).map_err(|error| ToolError::refused(format!("not sent: no URL: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn url(template: &str, input: &Value) -> Result<String, ToolError> {
        let template = UrlTemplate::parse(template).unwrap();
        template.fill(Values { input, token: "k1" }).map(String::from)
    }

    #[test]
    fn a_hostile_value_adds_neither_a_segment_nor_a_parameter_nor_a_fragment() {
        let evil = json!({ "id": "../admin?to=eve&x#y%2f\r\nHost: eve" });
        let filled = url("http://bank.example/refunds/{id}/notes?ref={token}&why={/id}", &evil).unwrap();
        let parsed = Url::parse(&filled).unwrap();
        let segments: Vec<_> = parsed.path_segments().unwrap().collect();
        assert_eq!((segments.len(), segments[0], segments[2]), (3, "refunds", "notes"), "{filled}");
        let pairs: Vec<_> = parsed.query_pairs().into_owned().collect();
        let why = evil["id"].as_str().unwrap().to_owned();
        assert_eq!(pairs, [("ref".to_owned(), "k1".to_owned()), ("why".to_owned(), why)]);
        assert_eq!((parsed.host_str(), parsed.fragment()), (Some("bank.example"), None));
    }

    #[test]
    fn a_value_that_a_path_would_lose_is_refused() {
        for value in ["", ".", ".."] {
            let refused = url("http://bank.example/refunds/{id}/notes", &json!({ "id": value }));
            assert!(refused.is_err(), "{value:?}: {refused:?}");
        }
        assert_eq!(url("http://b.example/a{id}", &json!({ "id": "" })).unwrap(), "http://b.example/a");
        assert!(url("http://b.example/{id}", &json!({ "id": {"a": 1} })).is_err());
        assert!(url("http://b.example/{id}", &json!({})).is_err());
    }

    #[test]
    fn a_url_whose_host_or_credential_could_leak_is_no_template() {
        for bad in [
            "http://{host}/x",
            "http://bank.{host}",
            "{url}",
            "ftp://bank.example/x",
            "http://ann:pw@bank.example/",
            "http://bank.example/{id",
            "http://bank.example/{}",
            "http://bank.example/x#{id}",
        ] {
            assert!(UrlTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
