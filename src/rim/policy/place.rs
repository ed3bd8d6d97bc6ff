//! The place of each field in the file, so that a finding can name a line.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A line and a column, counted from 1; the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rim) struct Place {
    pub(in crate::rim) line: u64,
    pub(in crate::rim) column: u64,
}

impl Place {
    /// The beginning of a file: the place of findings about the file as a whole.
    pub(in crate::rim) const START: Self = Self { line: 1, column: 1 };

    pub(in crate::rim) fn of(location: serde_saphyr::Location) -> Self {
        let (line, column) = (location.line(), location.column());
        if line == 0 { Self::START } else { Self { line, column } }
    }
}

/// The places of all fields, by their paths: `http.orders.ttl`, `webhooks.bank.secrets[1]`.
#[derive(Clone, Debug, Default)]
pub(in crate::rim) struct Places(BTreeMap<String, Place>);

impl Places {
    pub(in crate::rim) fn of(tree: &Tree) -> Self {
        let mut places = Self::default();
        places.add(tree, "");
        places
    }

    fn add(&mut self, tree: &Tree, path: &str) {
        match tree {
            Tree::Map(fields) => {
                for (key, value) in fields {
                    let path =
                        if path.is_empty() { key.value.clone() } else { format!("{path}.{}", key.value) };
                    self.0.insert(path.clone(), Place::of(key.referenced));
                    self.add(value, &path);
                }
            }
            Tree::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    let path = format!("{path}[{number}]");
                    self.0.insert(path.clone(), Place::of(item.referenced));
                    self.add(&item.value, &path);
                }
            }
            Tree::Leaf => {}
        }
    }

    /// True if the file has this field.
    pub(in crate::rim) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The place of a field; if the field is missing, the place of the section that it belongs to.
    pub(in crate::rim) fn find(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some(place) = self.0.get(path) {
                return *place;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Place::START,
            }
        }
    }

    /// The last field that begins at or before this place.
    pub(in crate::rim) fn at(&self, place: Place) -> Option<&str> {
        let before = self.0.iter().filter(|(_, begins)| **begins <= place);
        before.max_by_key(|(_, begins)| **begins).map(|(path, _)| path.as_str())
    }
}

/// The structure of a file, without its values.
pub(in crate::rim) enum Tree {
    Map(Vec<(Spanned<String>, Self)>),
    List(Vec<Spanned<Self>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Growing)
    }
}

struct Growing;

macro_rules! leaves {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E>(self, _: $kind) -> Result<Tree, E> { Ok(Tree::Leaf) })*
    };
}

impl<'de> Visitor<'de> for Growing {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section, a list or a value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }
}
