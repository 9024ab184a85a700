//! Groups under steering programs, on real packets: who got what. What is expected is written down
//! from the frames, not computed by any part of the compiler.

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
