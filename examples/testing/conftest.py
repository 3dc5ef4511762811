pytest_plugins = ["xbus.testing.plugin"]
