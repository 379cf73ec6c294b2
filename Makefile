.PHONY: tools
tools:
	@cargo xtask tools
