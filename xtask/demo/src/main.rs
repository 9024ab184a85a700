//! The demo, and the pictures of the documents.
#![allow(
    clippy::print_stdout,
    reason = "a command's output is for the terminal"
)]

mod demo;
mod picture;
mod plot;

use std::env;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => demo::run(),
        ["plot"] => plot::run(),
        ["picture"] => picture::run(),
        _ => bail!("usage: fanpcap-demo [plot | picture]"),
    }
}
