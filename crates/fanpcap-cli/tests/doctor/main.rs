//! `fanpcap doctor` in separate namespaces: each seeded problem is found, and its command fixes it.
#![forbid(unsafe_code)]

mod asked;
mod devices;
mod members;
mod settings;
mod privileges;
