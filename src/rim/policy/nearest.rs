//! Suggestions for unknown names.

/// The known name that is most similar to this one, if it is similar enough.
pub(in crate::rim) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let name: String = name.chars().take(64).collect::<String>().to_lowercase();
    let near = |known: &'n str| (strsim::jaro_winkler(&name, &known.to_lowercase()), known);
    let best = known.into_iter().map(near).max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(similarity, _)| *similarity > 0.75).map(|(_, known)| known)
}
