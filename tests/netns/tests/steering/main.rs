//! Groups with steering programs, on real packets. The tests derive the expected result from the
//! frames; no part of the compiler computes it.

mod age;
mod balance;
mod cast;
mod conversation;
mod counting;
mod documented;
mod flows;
mod fragments;
mod frame;
mod late;
mod newcomers;
mod queues;
mod runts;
mod scene;
mod steers;
mod tags;
mod talk;
mod together;
mod unmodified;
