//! `fanpcap doctor` in namespaces of its own: each seeded problem is found, and its command mends
//! it.
#![forbid(unsafe_code)]

mod asked;
mod devices;
mod members;
mod settings;
mod privileges;
