//! Values in a file that come from environment variables, because they are secrets.

/// The template with the values of environment variables: `Bearer ${NOTES_TOKEN}`.
///
/// # Errors
/// The reason in words: a variable that is not set, or a brace without its partner.
pub(in crate::rim) fn filled(
    template: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("${") {
        let unclosed = || format!("`${{` without its `}}`: {template:?}");
        let (name, behind) = after.split_once('}').ok_or_else(unclosed)?;
        let unset = || format!("the environment variable {name} is not set");
        filled.push_str(before);
        filled.push_str(&variable(name).ok_or_else(unset)?);
        rest = behind;
    }
    Ok(filled + rest)
}
