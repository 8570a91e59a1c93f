module longboat.test/testbed/tools

go 1.22
