//! Reads a device's channels, interrupts, NAPI threads and other settings. Changes these settings
//! with a journal, and restores the old values.
#![forbid(unsafe_code)]

pub mod error;
pub mod device;
pub mod channels;
pub mod interrupts;
mod irqbalance;
pub mod napi;
pub mod knob;
pub mod journal;
pub mod placing;
pub mod settings;
pub mod machine;
pub mod facts;
pub mod cpus;
pub mod plan;
pub mod apply;
