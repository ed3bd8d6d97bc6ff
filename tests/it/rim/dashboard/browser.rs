//! A browser without script: it keeps cookies, sends forms and follows nothing by itself.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};

/// What a browser was answered.
pub(super) struct Shown {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Shown {
    pub(super) fn location(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |location| location.to_str().unwrap())
    }

    /// The value of the first field of this name.
    pub(super) fn field(&self, name: &str) -> String {
        let marker = format!("name=\"{name}\" value=\"");
        let rest = self.text.split_once(&marker).unwrap_or_else(|| panic!("no {name} in {}", self.text)).1;
        rest.split_once('"').unwrap().0.to_owned()
    }

    pub(super) fn has(&self, text: &str) -> bool {
        self.text.contains(text)
    }
}

pub(super) struct Browser {
    url: String,
    client: Client,
    pub(super) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(super) fn at(url: &str) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { url: url.to_owned(), client, cookies: BTreeMap::new() }
    }

    /// A browser behind a proxy that puts this header on each request.
    pub(super) fn behind(url: &str, (name, value): (&'static str, &str)) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        let client = Client::builder().redirect(Policy::none()).default_headers(headers).build().unwrap();
        Self { client, ..Self::at(url) }
    }

    async fn send(&mut self, request: RequestBuilder) -> Shown {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let response = request.header(COOKIE, cookies.join("; ")).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for set in headers.get_all(SET_COOKIE) {
            let (pair, rest) = set.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            assert!(rest.contains("HttpOnly") && rest.contains("SameSite=Strict"), "{rest}");
            if rest.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        Shown { status, headers, text: response.text().await.unwrap() }
    }

    pub(super) async fn get(&mut self, path: &str) -> Shown {
        let request = self.client.get(format!("{}{path}", self.url));
        self.send(request).await
    }

    pub(super) async fn get_with(&mut self, path: &str, header: (&str, &str)) -> Shown {
        let request = self.client.get(format!("{}{path}", self.url)).header(header.0, header.1);
        self.send(request).await
    }

    pub(super) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let request = self.client.post(format!("{}{path}", self.url));
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let request =
            request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        self.send(request).await
    }

    /// Signs in with a token.
    pub(super) async fn sign_in(&mut self, token: &str) -> Shown {
        let secret = self.get("/ui/sign-in").await.field("form");
        self.post("/ui/sign-in", &[("form", &secret), ("token", token), ("next", "")]).await
    }
}

/// A text in a form or in an address.
pub(super) fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut shown, byte| {
        write!(shown, "%{byte:02X}").unwrap();
        shown
    })
}
