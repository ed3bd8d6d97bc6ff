//! The kinds of attacks, each made of a request that would be taken.

use counterfoil::api::{Api, Reach, Role, Route};

use super::answer::Shot;
use super::body::{LIMIT, spoilt, unreadable, valid};
use super::draw::{Draw, TEXTS};
use super::scene::Scene;
use crate::rim::api::operating::escaped;

/// The kind of an attack: the part of the request that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Nobody's token: it is missing, forged or revoked.
    Nobody,
    /// The token of a role that may not.
    Role,
    /// The name of another tenant.
    Tenant,
    /// A method that the route does not take.
    Method,
    /// A path of no route.
    Nowhere,
    /// An `Idempotency-Key` that is none.
    Key,
    /// A body that is no JSON, or not that of the route.
    Unreadable,
    /// A body beyond the limit.
    TooLarge,
    /// A `Last-Event-ID` that is none of the stream.
    Cursor,
    /// Forged parts of the path. The rest is right.
    Path,
    /// Forged cursors and filters.
    Query,
    /// A media type, or an encoding, that is not that of the body.
    Media,
    /// A body with some places spoilt.
    Body,
    /// Nothing.
    Valid,
}

impl Kind {
    /// The kinds that are always refused.
    pub(super) const REFUSED: [Self; 9] = [
        Self::Nobody,
        Self::Role,
        Self::Tenant,
        Self::Method,
        Self::Nowhere,
        Self::Key,
        Self::Unreadable,
        Self::TooLarge,
        Self::Cursor,
    ];
    /// The kinds that may be taken.
    pub(super) const OPEN: [Self; 5] = [Self::Path, Self::Query, Self::Media, Self::Body, Self::Valid];

    /// One of the kinds that are always refused. Large bodies are rare, because they take long.
    pub(super) fn refused(draw: &mut Draw) -> Self {
        loop {
            let kind = *draw.of_all(&Self::REFUSED);
            if kind != Self::TooLarge || draw.one_in(8) {
                return kind;
            }
        }
    }
}

/// A route with the caller who uses it.
struct Use<'s> {
    route: &'static Route,
    token: &'s str,
    /// The beginning of the path, which may name the tenant.
    tenant: String,
    sees_all: bool,
}

/// The arms of an attacker.
pub(super) struct Attacker<'s> {
    pub(super) scene: &'s Scene,
    pub(super) draw: Draw,
}

impl<'s> Attacker<'s> {
    /// The next request of this kind.
    pub(super) fn next(&mut self, kind: Kind) -> Shot {
        match kind {
            Kind::Nobody => self.nobody(),
            Kind::Role => self.role(),
            Kind::Tenant => self.tenant(),
            Kind::Method => self.method(),
            Kind::Nowhere => self.nowhere(),
            Kind::Key => self.key(),
            Kind::Unreadable => {
                let (of, shot) = self.write(kind, |route| route.method == "POST");
                let body = valid(of.route, &mut self.draw, self.scene);
                shot.body(unreadable(&mut self.draw, &body)).expects(&[400])
            }
            Kind::TooLarge => {
                let (_, shot) = self.write(kind, |route| route.method == "POST");
                let filler = *self.draw.of_all(b" x[\"\0");
                shot.body(vec![filler; LIMIT + 1 + self.draw.below(4096)]).expects(&[413])
            }
            Kind::Cursor => self.cursor(),
            Kind::Path => self.path(),
            Kind::Query => self.query(),
            Kind::Media => self.media(),
            Kind::Body => {
                let (of, shot) = self.write(kind, |route| route.method == "POST");
                let body = spoilt(of.route, &mut self.draw, self.scene);
                shot.body(body.to_string().into_bytes())
            }
            Kind::Valid => self.request(kind, |_| true).1,
        }
    }

    /// A route, and a caller who may use it: of its tenant, or of all tenants.
    fn route(&mut self, is_meant: impl Fn(&Route) -> bool) -> Use<'s> {
        let meant: Vec<_> = Api::routes().iter().filter(|route| is_meant(route)).collect();
        let route = *self.draw.of_all(&meant);
        let sees_all = route.reach == Reach::Ledger || self.draw.one_in(6);
        let (own, all) = (&self.scene.tokens.own, &self.scene.tokens.all);
        let known: &'s [(Role, String)] = if sees_all { all } else { own };
        let callers: Vec<&'s (Role, String)> =
            known.iter().filter(|(role, _)| role.allows(route.role)).collect();
        let (_, token) = *self.draw.of_all(&callers);
        let is_named = route.reach == Reach::Tenant && (sees_all || self.draw.one_in(2));
        let tenant = if is_named { "/tenants/acme".to_owned() } else { String::new() };
        Use { route, token, tenant, sees_all }
    }

    /// A part of a path that names a row of the caller's tenant.
    fn part(&mut self, name: &str) -> String {
        escaped(self.draw.of_all(&self.scene.parts[name]).as_str())
    }

    fn filled(&mut self, route: &Route, mut part: impl FnMut(&mut Self, &str) -> String) -> String {
        let mut path = String::new();
        for piece in route.path.split('/').skip(1) {
            path.push('/');
            match piece.strip_prefix('{').and_then(|piece| piece.strip_suffix('}')) {
                Some(name) => path.push_str(&part(self, name)),
                None => path.push_str(piece),
            }
        }
        path
    }

    /// The path of a route, to rows of the caller's tenant. A list is given what it needs.
    fn usual(&mut self, of: &Use<'_>) -> String {
        let path = self.filled(of.route, Self::part);
        let query = if of.route.path == "/memories" { "?subject=ann&kind=fact" } else { "" };
        format!("{}{path}{query}", of.tenant)
    }

    /// A request for a route, with all that it needs but its body.
    fn write(&mut self, kind: Kind, is_meant: impl Fn(&Route) -> bool) -> (Use<'s>, Shot) {
        let of = self.route(is_meant);
        let mut shot = Shot::new(kind, of.route.method, self.usual(&of)).bearer(of.token);
        if of.route.method == "POST" && !of.route.path.starts_with("/guard/") {
            shot = shot.key(&format!("k{}", self.draw.below(40)));
        }
        shot.sees_all = of.sees_all;
        (of, shot)
    }

    /// A request for a route, as it should be.
    fn request(&mut self, kind: Kind, is_meant: impl Fn(&Route) -> bool) -> (Use<'s>, Shot) {
        let (of, shot) = self.write(kind, is_meant);
        if of.route.method != "POST" {
            return (of, shot);
        }
        let body = valid(of.route, &mut self.draw, self.scene);
        (of, shot.body(body.to_string().into_bytes()))
    }

    fn nobody(&mut self) -> Shot {
        let (of, mut shot) = self.request(Kind::Nobody, |_| true);
        shot.headers.retain(|(name, _)| *name != "authorization");
        shot.sees_all = false;
        let (token, id) = (of.token, &of.token[..20]);
        let credentials = match self.draw.below(16) {
            0 => return shot.expects(&[401]),
            1 => Vec::new(),
            2 => b"Bearer".to_vec(),
            3 => b"Bearer ".to_vec(),
            4 => format!("Basic {token}").into_bytes(),
            5 => token.as_bytes().to_vec(),
            6 => format!("Bearer {}", self.scene.tokens.revoked).into_bytes(),
            7 => format!("Bearer {token}0").into_bytes(),
            8 => format!("Bearer {}", &token[..token.len() - 1]).into_bytes(),
            9 => format!("Bearer {}", token.to_uppercase()).into_bytes(),
            10 => format!("Bearer {id}_{}", "0".repeat(64)).into_bytes(),
            11 => format!("Bearer cft_{:016x}_{}", self.draw.below(1 << 30), &token[21..]).into_bytes(),
            12 => format!("Bearer cft_{}", "f".repeat(10_000)).into_bytes(),
            13 => b"Bearer cft_0123456789abcde\xe4_00".to_vec(),
            14 => format!("Bearer {token} {token}").into_bytes(),
            _ => format!("Bearer cft_' OR '1'='1' -- _{}", &token[21..]).into_bytes(),
        };
        shot.header("authorization", credentials).expects(&[401])
    }

    /// A caller of the tenant whose role may not use the route, or who asks about the ledger as a whole.
    fn role(&mut self) -> Shot {
        let (of, mut shot) = self.request(Kind::Role, |_| true);
        let (needed, is_ledger) = (of.route.role, of.route.reach == Reach::Ledger);
        let own = self.scene.tokens.own.iter();
        let barred: Vec<_> = own.filter(|(role, _)| is_ledger || !role.allows(needed)).collect();
        let (_, token) = *self.draw.of_all(&barred);
        shot.headers.retain(|(name, _)| *name != "authorization");
        shot.sees_all = false;
        shot.bearer(token).expects(&[403])
    }

    /// A caller of one tenant who names another one.
    fn tenant(&mut self) -> Shot {
        let mut of = self.route(|route| route.reach == Reach::Tenant);
        of.tenant = String::new();
        let path = self.usual(&of);
        let own = self.scene.tokens.own.iter().filter(|(role, _)| role.allows(of.route.role));
        let own: Vec<_> = own.map(|(_, token)| token.as_str()).collect();
        let (token, tenant) = if of.route.role == Role::Read && self.draw.one_in(3) {
            (self.scene.tokens.other.as_str(), "acme".to_owned())
        } else {
            let names = ["other", "Acme", "acme ", "acme/", "acme\0", "*", "..", "~counterfoil", "default"];
            (*self.draw.of_all(&own), (*self.draw.of_all(&names)).to_owned())
        };
        let shot = Shot::new(Kind::Tenant, of.route.method, format!("/tenants/{}{path}", escaped(&tenant)));
        let body = valid(of.route, &mut self.draw, self.scene).to_string();
        shot.bearer(token).key("k").body(body.into_bytes()).expects(&[403])
    }

    fn method(&mut self) -> Shot {
        let (of, mut shot) = self.request(Kind::Method, |_| true);
        let taken: Vec<_> = Api::routes()
            .iter()
            .filter(|route| route.path == of.route.path)
            .map(|route| route.method)
            .collect();
        let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];
        let others: Vec<_> = methods.into_iter().filter(|method| !taken.contains(method)).collect();
        (*self.draw.of_all(&others)).clone_into(&mut shot.method);
        shot.expects(&[405])
    }

    fn nowhere(&mut self) -> Shot {
        const PATHS: [&str; 12] = [
            "/",
            "//runs",
            "/runs/",
            "/RUNS",
            "/%72uns",
            "/runs/run-1/history/x",
            "/runs/../tokens",
            "/guard",
            "/guard/end",
            "/tenants/acme",
            "/tenants/acme/tokens",
            "/openapi.json/x",
        ];
        let path = match self.draw.below(3) {
            0 => format!("/tenants/acme/{}x", escaped(&self.draw.text(&self.scene.genuine))),
            1 => format!("/{}x", escaped(&self.draw.text(&self.scene.genuine))),
            _ => (*self.draw.of_all(&PATHS)).to_owned(),
        };
        let method = *self.draw.of_all(&["GET", "POST", "DELETE"]);
        Shot::new(Kind::Nowhere, method, path).bearer(&self.scene.tokens.own[4].1).expects(&[404])
    }

    fn key(&mut self) -> Shot {
        let is_write = |route: &Route| route.method == "POST" && !route.path.starts_with("/guard/");
        let (_, mut shot) = self.request(Kind::Key, is_write);
        shot.headers.retain(|(name, _)| *name != "idempotency-key");
        let key = match self.draw.below(9) {
            0 => return shot.expects(&[400]), // without a key
            1 => Vec::new(),
            2 => vec![b'k'; 256],
            3 => vec![b'k'; 60_000],
            4 => b"k\xe4".to_vec(),
            5 => b"a\tb".to_vec(),
            6 => b"\"open".to_vec(),
            7 => b"\"\"".to_vec(),
            _ => {
                shot = shot.key("one");
                b"two".to_vec()
            }
        };
        shot.header("idempotency-key", key).expects(&[422])
    }

    /// A stream behind a place that is none of it.
    fn cursor(&mut self) -> Shot {
        let (_, mut shot) = self.request(Kind::Cursor, |route| route.path.ends_with("/events"));
        // A cursor is of one stream: the tenant's, or that of one run.
        let is_spoilt = self.draw.one_in(2);
        let (_, token) = self.draw.of_all(&self.scene.tokens.own[1..]);
        shot.headers.retain(|(name, _)| *name != "authorization");
        shot.sees_all = false;
        let cursor = if is_spoilt {
            let cursor = self.draw.of_all(&self.scene.cursors).clone();
            self.draw.spoilt(&cursor).replace('\u{1}', "-")
        } else {
            let others = self.scene.cursors[2..].iter().map(String::as_str); // those of the other tenant
            let forged = ["x", "AAAA", "-", "%00", "=", "\u{e4}"];
            let all: Vec<_> = others.chain(forged).collect();
            (*self.draw.of_all(&all)).to_owned()
        };
        let cursor = if cursor.is_empty() { "x".to_owned() } else { cursor };
        shot.bearer(token).header("last-event-id", cursor).expects(&[400, 429])
    }

    fn path(&mut self) -> Shot {
        let (of, mut shot) = self.request(Kind::Path, |_| true);
        let scene = self.scene;
        let path = self.filled(of.route, |attacker, name| match attacker.draw.below(12) {
            0 => (*attacker.draw.of_all(&["%FF", "%C0%80", "%ED%A0%80", "%", "%ZZ", "%00", ".", "%2e%2e"]))
                .to_owned(),
            1..4 => attacker.part(name),
            _ => escaped(&attacker.draw.text(&scene.genuine)),
        });
        let tenant = match of.tenant.as_str() {
            // Not the other tenant: this caller may change everything.
            "/tenants/acme" if of.sees_all && self.draw.one_in(3) => {
                let name = self.draw.of_all(&TEXTS);
                format!("/tenants/{}", escaped(name))
            }
            named => named.to_owned(),
        };
        shot.path = format!("{tenant}{path}");
        shot
    }

    fn query(&mut self) -> Shot {
        const NAMES: [&str; 14] = [
            "after",
            "limit",
            "state",
            "workflow",
            "key",
            "label",
            "since",
            "before",
            "newest_first",
            "answered",
            "tool",
            "kind",
            "subject",
            "version",
        ];
        let (of, mut shot) = self.request(Kind::Query, |route| route.method == "GET");
        // Mostly what the route knows: a query with another name gets no further than its name.
        let known = of.route.query.filter(|known| !known.is_empty()).unwrap_or(&NAMES);
        let mut pairs = Vec::new();
        for _ in 0..=self.draw.below(3) {
            let name = if self.draw.one_in(20) {
                escaped("\0&")
            } else {
                let names = if self.draw.one_in(10) { &NAMES[..] } else { known };
                (*self.draw.of_all(names)).to_owned()
            };
            let value = match self.draw.below(12) {
                0 => "%FF%C0%80".to_owned(),
                1 => String::new(),
                2 => (*self.draw.of_all(&["1", "50", "true", "committed", "waiting", "post", "2026-11"]))
                    .to_owned(),
                3 => "customer%3Dc-7".to_owned(),
                _ => escaped(&self.draw.text(&self.scene.genuine)),
            };
            pairs.push(format!("{name}={value}"));
        }
        let separator = if shot.path.contains('?') { '&' } else { '?' };
        shot.path = format!("{}{separator}{}", shot.path, pairs.join("&"));
        if self.draw.one_in(10) {
            "HEAD".clone_into(&mut shot.method);
        }
        shot
    }

    fn media(&mut self) -> Shot {
        let (_, shot) = self.request(Kind::Media, |route| route.method == "POST");
        let media = [
            "",
            "text/plain",
            "text/html; charset=utf-16",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "application/json; charset=\u{e4}",
            "*/*",
        ];
        let shot = shot.header("content-type", *self.draw.of_all(&media));
        let shot = shot.header("content-encoding", *self.draw.of_all(&["gzip", "br", "identity"]));
        shot.header("accept", *self.draw.of_all(&["text/html", "", "image/png;q=\u{e4}"]))
    }
}
