//! A plan as text for users: the CPUs, the steps with their reasons, the notes.

use super::{Plan, Step};
use fanpcap_linux::process::cpu;
use std::fmt::Write as _;

/// Limit on the length of a value. Longer values, such as tables and keys, are truncated.
const VALUE_MAX: usize = 32;

impl Plan {
    /// The plan as text.
    pub fn text(&self) -> String {
        let receive: Vec<String> = self.receive.iter().map(usize::to_string).collect();
        let applications: Vec<String> = self.applications.iter().map(usize::to_string).collect();
        let mut text = format!(
            "receive on CPU {}; applications on CPU {}\n",
            receive.join(", "),
            applications.join(", ")
        );
        if self.steps.is_empty() {
            text.push_str("nothing to change\n");
        }
        for (number, step) in (1..).zip(&self.steps) {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{number:3}. {}", step.text());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// The CPUs for applications as a list for `fanpcap run --cpus`.
    pub fn application_list(&self) -> String {
        let mut cpus = self.applications.clone();
        cpus.sort_unstable();
        cpu::list_text(&cpus)
    }
}

impl Step {
    /// The change and its reason in one line.
    pub fn text(&self) -> String {
        let now = self.now.as_deref().map_or("?".to_owned(), shown);
        let (target, value, reason) = (&self.target, shown(&self.value), &self.reason);
        format!("{target}: {now} -> {value} ({reason})")
    }
}

/// A value for users.
pub fn shown(value: &str) -> String {
    match value.len() {
        0 => "none".to_owned(),
        // Values are ASCII.
        len if len > VALUE_MAX => {
            let cut: String = value.chars().take(VALUE_MAX - 3).collect();
            cut + "..."
        }
        _ => value.to_owned(),
    }
}
