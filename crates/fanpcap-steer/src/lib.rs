//! The steering language: one program says which packets a group wants and which member gets each.

pub mod hash;
pub mod ir;
