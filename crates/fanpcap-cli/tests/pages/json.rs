//! Checks a command's JSON against the command's page in the documentation. The page must document
//! each field with its type, and each object must have all documented fields.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Documented types, by the fields' paths, such as `devices[].groups[].group`.
pub(crate) fn documented(page: &str) -> BTreeMap<String, String> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let path = cells.next()?.trim().strip_suffix('`')?;
        Some((path.to_owned(), cells.next()?.trim().to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// Compares a JSON value with the text of its page. Returns the paths of the value's fields.
///
/// # Errors
/// A field is missing or differs from its documentation. The message names the first such field.
pub(crate) fn check(page: &str, value: &Value) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    check_below(&documented(page), value, "", &mut found)?;
    Ok(found)
}

fn check_below(
    documented: &BTreeMap<String, String>,
    value: &Value,
    path: &str,
    found: &mut BTreeSet<String>,
) -> Result<()> {
    if let Value::Array(items) = value {
        let path = format!("{path}[]");
        let mut items = items.iter();
        return items.try_for_each(|item| check_below(documented, item, &path, found));
    }
    let Value::Object(fields) = value else {
        return Ok(());
    };
    let dot = if path.is_empty() { "" } else { "." };
    let prefix = format!("{path}{dot}");
    let below = documented
        .keys()
        .filter_map(|key| key.strip_prefix(&prefix));
    for name in below.filter(|name| !name.contains('.')) {
        ensure!(fields.contains_key(name), "'{prefix}{name}' is missing");
    }
    for (name, field) in fields {
        let path = format!("{prefix}{name}");
        let types = documented.get(&path);
        let types = types.with_context(|| format!("'{path}' is not documented"))?;
        let own = type_of(field);
        let fits = |name: &str| name == own || (name == "number" && own == "integer");
        ensure!(
            types.split(" or ").any(fits),
            "'{path}' is {own}, documented as {types}"
        );
        check_below(documented, field, &path, found)?;
        found.insert(path);
    }
    Ok(())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
