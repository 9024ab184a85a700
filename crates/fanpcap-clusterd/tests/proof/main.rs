//! Whole clusters of real processes. Each packet must be captured or accounted for.
#![allow(clippy::print_stdout, reason = "the figures of long runs")]

mod wire;
mod readers;
mod files;
mod account;
mod stage;
mod owners;
mod changes;
mod several;
mod deaths;
mod outages;
mod reports;
mod ports;
mod legs;
mod filter;
mod combined;
