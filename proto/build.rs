//! Generates the wire types from `schema/`, without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=schema");
    let files = protox::compile(["schema/toolfleet/v1/wire.proto"], ["schema"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    Ok(())
}
