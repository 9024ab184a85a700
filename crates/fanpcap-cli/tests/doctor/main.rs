//! `fanpcap doctor` in separate namespaces. It must find each problem that a test creates, and the
//! command that it prints must fix the problem.
#![forbid(unsafe_code)]

mod asked;
mod devices;
mod engines;
mod members;
mod settings;
mod privileges;
