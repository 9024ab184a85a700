//! A steering program on the command line. It is a file, a text, or the name of a mode that is a
//! steering program.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_config::mode::Mode;
use fanpcap_steer::modes;
use fanpcap_steer::nearest::nearest;

use super::source::Source;

/// The steering program of a command line, in one of these three forms.
#[derive(Args, Debug)]
pub(super) struct Given {
    /// The file of the steering program; `-` is standard input
    #[arg(conflicts_with_all = ["text", "mode"])]
    file: Option<PathBuf>,
    /// The text of the steering program
    #[arg(short = 'e', long, value_name = "TEXT", conflicts_with = "mode")]
    text: Option<String>,
    /// The name of a fan-out mode that is a steering program: flow, flow_2_tuple ...
    #[arg(long, value_name = "NAME")]
    mode: Option<String>,
}

impl Given {
    /// The steering program's text.
    ///
    /// # Errors
    /// The file can't be read, or no mode has this name.
    pub(super) fn source(&self) -> Result<Source> {
        match (&self.text, &self.mode, &self.file) {
            (Some(text), _, _) => Ok(Source::of_text(text)),
            (_, Some(name), _) => {
                let text = modes::source(&name.to_lowercase()).with_context(|| unknown(name))?;
                Ok(Source::new(name, text))
            }
            (_, _, Some(file)) => Source::read(file),
            (None, None, None) => anyhow::bail!("no program"),
        }
    }

    /// Whether the command line has no steering program.
    pub(super) fn is_missing(&self) -> bool {
        self.text.is_none() && self.mode.is_none() && self.file.is_none()
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = modes::MODES.iter().map(|(name, _)| *name).collect();
    if Mode::parse(name).is_ok() {
        return format!("--mode {name}: this is a mode of the kernel, not a steering program");
    }
    let near = nearest(name, known.iter().copied());
    let advice = near.map_or_else(
        || format!("there are {}", known.join(", ")),
        |near| format!("did you mean '{near}'?"),
    );
    format!("--mode {name}: no program has this name; {advice}")
}
