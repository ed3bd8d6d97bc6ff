//! The command line, with the example workflows to simulate.

#[path = "../workflows/simulated.rs"]
mod simulated;

fn main() -> std::process::ExitCode {
    counterfoil::cli::main(simulated::suite())
}
