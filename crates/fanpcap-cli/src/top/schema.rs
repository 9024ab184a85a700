//! Checks JSON against its documentation: each field is documented, with its type, and each
//! documented field exists.

use std::collections::BTreeMap;

use serde_json::Value;

/// The documentation of `fanpcap top --json`.
const PAGE: &str = include_str!("../../../../docs/top-json.md");

/// Documented types of `top`, by the fields' paths, such as `devices[].groups[].group`.
pub(crate) fn documented() -> BTreeMap<String, String> {
    documented_by(PAGE)
}

/// Documented types of any page of the documentation.
pub(crate) fn documented_by(page: &str) -> BTreeMap<String, String> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let path = cells.next()?.trim().strip_suffix('`')?;
        Some((path.to_owned(), cells.next()?.trim().to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// Compares a value with the documentation of `top`.
///
/// # Errors
/// A field is missing or differs from its documentation; the message names the first.
pub(crate) fn check(value: &Value) -> Result<(), String> {
    check_by(PAGE, value)
}

/// Compares a value with any page of the documentation.
pub(crate) fn check_by(page: &str, value: &Value) -> Result<(), String> {
    let documented = documented_by(page);
    walk(value, "", &mut |path, value| {
        let types = documented
            .get(path)
            .ok_or_else(|| format!("'{path}' is not documented"))?;
        let found = type_of(value);
        let fits = types
            .split(" or ")
            .any(|name| name == found || (name == "number" && found == "integer"));
        if !fits {
            return Err(format!("'{path}' is {found}, documented as {types}"));
        }
        Ok(())
    })?;
    complete(value, "", &documented)
}

/// Checks that each object has all its documented fields.
fn complete(value: &Value, path: &str, all: &BTreeMap<String, String>) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            let prefix = if path.is_empty() {
                String::new()
            } else {
                format!("{path}.")
            };
            let own = all
                .keys()
                .filter_map(|key| key.strip_prefix(prefix.as_str()))
                .filter(|rest| !rest.contains('.'));
            for name in own {
                let Some(inner) = fields.get(name) else {
                    return Err(format!("'{prefix}{name}' is missing"));
                };
                complete(inner, &format!("{prefix}{name}"), all)?;
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| complete(item, &format!("{path}[]"), all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Visits each field with its path.
pub(crate) fn walk(
    value: &Value,
    path: &str,
    visit: &mut impl FnMut(&str, &Value) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{name}");
            visit(&path, field)?;
            walk(field, &path, visit)
        }),
        Value::Array(items) => {
            let path = format!("{path}[]");
            items.iter().try_for_each(|item| walk(item, &path, visit))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
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
