import matplotlib.pyplot as plt

plt.bar(["a", "b"], [3, 5], label="2023")
plt.bar(["a", "b"], [4, 6])
plt.title("Bars")
plt.xlabel("Who")
plt.ylabel("Much (kg)")
plt.show()
