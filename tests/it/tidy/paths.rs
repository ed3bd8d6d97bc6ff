//! The paths that source files name, in `use` lines and inside of code, read far enough to tell who imports whom.

use std::collections::BTreeMap;

/// A path from the crate's root.
pub(super) type Path = Vec<String>;

/// What a source file names.
#[derive(Default)]
pub(super) struct Named {
    /// What `use` lines bring in: under which name, and its path.
    pub(super) used: Vec<(String, Path)>,
    /// Paths inside of code.
    pub(super) written: Vec<Path>,
    /// The words outside of `use` lines.
    pub(super) words: std::collections::BTreeSet<String>,
}

/// Splits Rust into words, `::` and single signs. Comments, strings and characters are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |at: usize| chars.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let is = |at: usize, sign: char| chars.get(at) == Some(&sign);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let from = at;
        at += 1;
        if is_word(from) {
            while is_word(at) {
                at += 1;
            }
            let word: String = chars[from..at].iter().collect();
            let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
            if (word == "r" || word == "br") && is(at + hashes, '"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let rest: String = chars[at + hashes + 1..].iter().collect();
                let length = rest.find(&end).map_or(rest.len(), |byte| rest[..byte].chars().count());
                at += hashes + 1 + length + end.len();
            } else {
                found.push(word);
            }
        } else if is(from, '/') && is(at, '/') {
            while at < chars.len() && !is(at, '\n') {
                at += 1;
            }
        } else if is(from, '/') && is(at, '*') {
            while at < chars.len() && !(is(at, '*') && is(at + 1, '/')) {
                at += 1;
            }
            at += 2;
        } else if is(from, '"') {
            while at < chars.len() && !is(at, '"') {
                at += 1 + usize::from(is(at, '\\'));
            }
            at += 1;
        } else if is(from, '\'') && (is(at, '\\') || is(at + 1, '\'')) {
            at += 1 + usize::from(is(at, '\\'));
            while at < chars.len() && !is(at, '\'') {
                at += 1;
            }
            at += 1;
        } else if is(from, ':') && is(at, ':') {
            at += 1;
            found.push("::".to_owned());
        } else if !chars[from].is_whitespace() {
            found.push(chars[from].to_string());
        }
    }
    found
}

/// Reads what a file names that holds this module.
pub(super) fn named(text: &str, module: &[String]) -> Named {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, at: 0 };
    let mut named = Named::default();
    // The modules that are written inside of the file, each with the number of braces around it.
    let (mut inside, mut braces): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    while let Some(token) = tokens.get(reader.at) {
        let before = reader.at.checked_sub(1).map(|at| tokens[at].as_str());
        let here: Path = module.iter().chain(inside.iter().map(|(name, _)| name)).cloned().collect();
        match token.as_str() {
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                inside.pop_if(|(_, around)| *around == braces);
            }
            "mod" if reader.is(2, "{") => inside.push((tokens[reader.at + 1].clone(), braces)),
            "use" if !reader.is(1, "<") => {
                reader.at += 1;
                let mut trees = Vec::new();
                reader.tree(&[], &mut trees);
                let absolute = trees.into_iter().map(|(name, path)| (name, rooted(&path, &here)));
                named.used.extend(absolute);
                continue;
            }
            // Of `pub(in crate::exec)` nothing is imported.
            "in" if before == Some("(") => reader.at += 1,
            word if before != Some("::") && reader.is(1, "::") && starts_word(word) => {
                let mut path = vec![word.to_owned()];
                while reader.is(1, "::") && tokens.get(reader.at + 2).is_some_and(|next| starts_word(next)) {
                    reader.at += 2;
                    path.push(tokens[reader.at].clone());
                }
                named.words.insert(path[0].clone());
                // A macro has no module.
                if !reader.is(1, "!") {
                    named.written.push(rooted(&path, &here));
                }
            }
            word => drop(named.words.insert(word.to_owned())),
        }
        reader.at += 1;
    }
    named
}

fn starts_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A path as it is from the root. What begins with a plain name begins in the module itself.
fn rooted(path: &[String], module: &[String]) -> Path {
    let up = path.iter().take_while(|segment| *segment == "super").count();
    let (base, rest) = match path.first().map(String::as_str) {
        Some("crate") => (&module[..0], &path[1..]),
        Some("super") => (&module[..module.len().saturating_sub(up)], &path[up..]),
        Some("self") => (module, &path[1..]),
        _ => (module, path),
    };
    base.iter().chain(rest).cloned().collect()
}

struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
}

impl Reader<'_> {
    fn is(&self, ahead: usize, sign: &str) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| token == sign)
    }

    /// Reads a tree of a `use` line: each name that it brings in, and the path of that.
    fn tree(&mut self, before: &[String], found: &mut Vec<(String, Path)>) {
        let mut path = before.to_vec();
        loop {
            if self.is(0, "{") {
                self.at += 1;
                while !self.is(0, "}") {
                    self.tree(&path, found);
                    self.at += usize::from(self.is(0, ","));
                }
                self.at += 1;
                return;
            }
            let Some(token) = self.tokens.get(self.at) else { return };
            let is_itself = token == "self" && !path.is_empty();
            if !is_itself && token != "*" && token != "::" {
                path.push(token.clone());
            }
            self.at += 1;
            if !self.is(0, "::") {
                break;
            }
            self.at += 1;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.is(0, "as") {
            name.clone_from(&self.tokens[self.at + 1]);
            self.at += 2;
        }
        found.push((name, path));
    }
}

/// All files of the library, by their modules.
pub(super) fn library() -> BTreeMap<Path, (std::path::PathBuf, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let module = |path: &std::path::Path| -> Path {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let mut module: Path = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| *last == "mod" || *last == "lib");
        module
    };
    super::sources("src").into_iter().map(|(path, text)| (module(&path), (path, text))).collect()
}
