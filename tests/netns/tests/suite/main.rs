//! Tests on real packets with unmodified programs, each in a network namespace of its own.

mod burdened;
mod calls;
mod closing;
mod counters;
mod devices;
mod entering;
mod forks;
mod groups;
mod joining;
mod kernel;
mod late;
mod live;
mod membership;
mod merged;
mod modes;
mod namespaces;
mod pages;
mod replacing;
mod settings;
mod several;
mod signals;
mod stack;
mod steering;
mod strangers;
mod thousand;
mod two_wires;
