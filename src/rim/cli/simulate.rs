//! `counterfoil simulate`, also for a program of your own with this single command.

use std::process::ExitCode;

use clap::Parser;

use crate::sim::{Options, Suite};

#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

impl Suite {
    /// The `main` of a program of your own: takes the options of `counterfoil simulate` from its arguments.
    ///
    /// ```no_run
    /// use counterfoil::sim::{Simulation, Suite};
    /// use counterfoil::{Ctx, Failure};
    ///
    /// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    ///     ctx.step("greeting", &name, |name| format!("Hello, {name}!")).await
    /// }
    ///
    /// fn main() -> std::process::ExitCode {
    ///     Suite::new().with("greet", || Simulation::of(greet, "Ann".to_owned())).main()
    /// }
    /// ```
    pub fn main(self) -> ExitCode {
        let program = std::env::args().next().unwrap_or_default();
        self.command(&program).run(&Arguments::parse().options)
    }
}
